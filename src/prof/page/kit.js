// kit.js -- what the parts share: elements, numbers as text, scales, tables, the box that follows the pointer.
const SVG = "http://www.w3.org/2000/svg";
const CAUSES = ["compute", "movement", "launch", "wait", "idle"];

function add(parent, name, attributes = {}, text = "") {
  const drawn = parent instanceof SVGElement || name === "svg";
  const made = drawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  parent.appendChild(made);
  return made;
}

function short(value, digits = 3) {
  if (value === 0 || !isFinite(value)) return String(value);
  return Math.abs(value) >= 10 ** digits ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(digits));
}
function seconds(s) {
  return s >= 1 ? short(s) + " s" : s >= 1e-3 ? short(s * 1e3) + " ms" : short(s * 1e6) + " \u00b5s";
}
function bytes(b) {
  return b >= 2 ** 30 ? short(b / 2 ** 30) + " GiB" : b >= 2 ** 20 ? short(b / 2 ** 20) + " MiB"
    : b >= 2 ** 10 ? short(b / 2 ** 10) + " KiB" : b + " B";
}
function percent(share) { return (100 * share).toFixed(share < 0.0995 ? 1 : 0) + "%"; }
function giga(count, time) { return time > 0 ? short(count / time / 1e9) : "0"; }
function reached(l) { const time = l.seconds ?? l.forward + l.backward; return time > 0 ? l.roof_seconds / time : 0; }
function colour(name) { return "var(--" + name + ")"; }
function place(launch) { return launch.layer + (launch.backward ? ", backward" : ""); }

// A scale from [a, b] to [from, to], linear or logarithmic, with about so many round ticks.
function scale(a, b, from, to, log = false) {
  const f = log ? Math.log10 : (v) => v;
  const at = (v) => from + (to - from) * (f(v) - f(a)) / (f(b) - f(a) || 1);
  at.ticks = (count = 6) => {
    const list = [];
    if (log) {
      const fine = f(b) - f(a) < 2.5 ? [1, 2, 5] : [1];
      for (let e = Math.floor(f(a)); e <= f(b); ++e) list.push(...fine.map((m) => m * 10 ** e));
      return list.filter((v) => v >= a * 0.999 && v <= b * 1.001);
    }
    const raw = (b - a) / count, power = 10 ** Math.floor(Math.log10(raw || 1));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
    for (let v = Math.ceil(a / step) * step; v <= b + step * 1e-9; v += step) list.push(+v.toPrecision(12));
    return list;
  };
  return at;
}

function picture(parent, width, height, label) {
  return add(parent, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
}
function axisX(svg, x, ticks, y, top, text) {
  for (const tick of ticks) {
    add(svg, "line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: y });
    add(svg, "text", { x: x(tick), y: y + 16, "text-anchor": "middle" }, text(tick));
  }
  return svg;
}
function axisY(svg, y, ticks, left, right, text) {
  for (const tick of ticks) {
    add(svg, "line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) });
    add(svg, "text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, text(tick));
  }
  return svg;
}

function tip(mark, text) {
  const box = document.getElementById("tip");
  mark.classList.add("mark");
  mark.addEventListener("pointermove", (event) => {
    box.textContent = text();
    box.hidden = false;
    box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)) + "px";
    box.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)) + "px";
  });
  mark.addEventListener("pointerleave", () => { box.hidden = true; });
}

function legend(parent, entries) {
  const list = add(parent, "ul", { class: "legend" });
  for (const [name, text] of entries) {
    const item = add(list, "li");
    add(item, "i", { style: "background:" + colour(name) });
    item.append(text);
  }
}

// Columns: {title, text: row -> string, by: row -> number (sortable), left, wide}. Shows `most` rows, then a button.
function table(parent, columns, rows, most = 20) {
  const made = add(add(parent, "div", { class: "scroll" }), "table");
  const head = add(add(made, "thead"), "tr"), body = add(made, "tbody");
  let sorted = rows.slice(), all = false;
  const fill = () => {
    body.replaceChildren();
    sorted.forEach((row, i) => {
      const line = add(body, "tr", !all && i >= most ? { class: "more" } : {});
      for (const c of columns) add(line, "td", { class: (c.left ? "text" : "") + (c.wide ? " wide" : "") }, c.text(row));
    });
  };
  for (const c of columns) {
    const cell = add(head, "th", { class: c.left ? "text" : "" }, c.by ? "" : c.title);
    if (!c.by) continue;
    add(cell, "button", { type: "button", title: "sort" }, c.title).addEventListener("click", () => {
      sorted = rows.slice().sort((a, b) => c.by(b) - c.by(a));
      fill();
    });
  }
  fill();
  if (rows.length > most)
    add(parent, "button", { class: "plain", type: "button" }, `all ${rows.length}`).addEventListener("click", (event) => {
      all = true;
      event.target.remove();
      fill();
    });
}

function drawPage(data) {
  const page = document.getElementById("page");
  for (const p of parts.sort((a, b) => a.order - b.order)) {
    const found = p.wanted(data);
    if (!found || (Array.isArray(found) && found.length === 0)) continue;
    const box = p.title ? add(page, "section") : add(page, "header");
    if (p.title) add(box, "h2", {}, p.title);
    p.draw(box, found, data);
  }
  document.body.dataset.drawn = "yes";
}
