#!/usr/bin/python3
"""check_report.py SITU | REPORT.html [--expect TITLE,..] [--shots FOLDER] -- a report in a real browser (headless Chromium).

Given the command, makes a report of a small model first. Opens the page in light and in dark and checks: every part is
drawn, the console has no error, nothing is asked of any network, colours follow the scheme, no number failed to be one.
--shots writes report-light.png and report-dark.png, small ones where pngquant is there. Exits with 77 (skipped) where Chromium or Selenium is missing.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

PARTS = ["Where the time goes", "The costliest launches", "Roofline", "Timeline", "Memory over the step", "Layers",
         "Launches", "Loss"]
SKIPPED = 77
WIDTH, HEIGHT = 1120, 900

try:  # Debian's, so the shebang names Debian's Python
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    webdriver = None


def open_browser(profile):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update",
                 f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def requests_of(browser):
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            yield message["params"]["request"]["url"]


def complaints_about(browser, url, scheme, expected):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                            {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what the browser does for itself
    browser.get(url)
    for entry in browser.get_log("browser"):
        yield f"console: {entry['message']}"
    for asked in requests_of(browser):
        if asked != url and not asked.startswith("data:"):
            yield f"it asks for {asked}"
    if browser.execute_script("return document.body.dataset.drawn") != "yes":
        yield "the scripts did not come to their end"
    titles = browser.execute_script("return [...document.querySelectorAll('section > h2')].map(h => h.textContent)")
    for title in expected:
        if title not in titles:
            yield f"`{title}` is not drawn"
    empty = browser.execute_script(
        "return [...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height < 10 ||"
        " s.children.length < 2).map(s => s.getAttribute('aria-label'))")
    for label in empty:
        yield f"the picture `{label}` is empty"
    wrong = browser.execute_script(
        "const m = document.getElementById('page').innerHTML.match(/.{0,40}(NaN|undefined|Infinity).{0,40}/);"
        "return m && m[0]")
    if wrong:
        yield f"no number: {wrong}"
    wide = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        yield f"it is {wide} pixels wider than the window"


def shoot(browser, path):
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False})
    browser.save_screenshot(str(path))
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "64", path], check=True)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def check(report, expected, shots):
    complaints, papers = [], {}
    with tempfile.TemporaryDirectory() as profile:
        browser = open_browser(profile)
        try:
            for scheme in ("light", "dark"):
                complaints += [f"{scheme}: {c}" for c in complaints_about(browser, report.as_uri(), scheme, expected)]
                papers[scheme] = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
                if shots:
                    shots.mkdir(parents=True, exist_ok=True)
                    shoot(browser, shots / f"report-{scheme}.png")
        finally:
            browser.quit()
    if papers["light"] == papers["dark"]:
        complaints.append(f"light and dark are the same: {papers['light']}")
    return complaints


def make_report(situ, folder):
    report = pathlib.Path(folder) / "report.html"
    subprocess.run([situ, "profile", "lenet5", "--batch", "8", "--seconds", "0.2", "--threads", "1", "--report", report],
                   check=True, stdout=subprocess.DEVNULL)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what")
    parser.add_argument("--expect", default=",".join(PARTS), help="titles of parts that must be there")
    parser.add_argument("--shots", type=pathlib.Path)
    options = parser.parse_args()
    if webdriver is None or not shutil.which("chromium") or not shutil.which("chromedriver"):
        print("report: skipped, since there is no browser: apt-get install chromium chromium-driver python3-selenium")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        given = pathlib.Path(options.what).resolve()
        report = given if given.suffix == ".html" else make_report(given, folder)
        complaints = check(report, [t for t in options.expect.split(",") if t], options.shots)
        size = report.stat().st_size
    for complaint in complaints:
        print(f"report: {complaint}")
    if complaints:
        sys.exit(1)
    print(f"report: {size >> 10} KiB, drawn in light and dark, no errors, no requests")


if __name__ == "__main__":
    main()
