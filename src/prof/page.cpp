// page.cpp -- the report as one file: page/page.html with every style, script and the data put inside.
#include "base/error.h"
#include "prof/embedded.h"
#include "prof/profile.h"

namespace situ::prof {
namespace {

void put(std::string& page, std::string_view mark, std::string_view text) {
  const size_t at = page.find(mark);
  SITU_ASSERT(at != std::string::npos, "page.html has no {}", mark);
  page.replace(at, mark.size(), text);
}

// "</script>" inside a string would end the element it stands in; in JSON the slash may be escaped.
std::string within_script(std::string_view json) {
  std::string text;
  for (size_t i = 0; i < json.size(); ++i) {
    text += json[i];
    if (json[i] == '<' && i + 1 < json.size() && (json[i + 1] == '/' || json[i + 1] == '!')) {
      text.pop_back();
      text += "\\u003c";
    }
  }
  return text;
}

std::string within_html(std::string_view plain) {
  std::string text;
  for (char c : plain) {
    if (c == '<')
      text += "&lt;";
    else if (c == '&')
      text += "&amp;";
    else
      text += c;
  }
  return text;
}

}  // namespace

std::string report_page(const std::string& title, const std::string& json) {
  std::string page, styles, scripts;
  for (const auto& [name, text] : embedded_page_files()) {
    if (name.ends_with(".css")) styles += text;
    if (name.ends_with(".js")) scripts += text;
    if (name == "page.html") page = text;
  }
  put(page, "<!--title-->", within_html(title));
  put(page, "/*styles*/", styles);
  put(page, "/*scripts*/", scripts);
  put(page, "<!--data-->", within_script(json));
  return page;
}

}  // namespace situ::prof
