// memory.js -- the arena: addresses upwards, launches to the right, a box for each tensor; and what lasts beside it.
part(50, "Memory over the step", (data) => data.profile && data.profile.memory.tensors.length && data.profile.memory, (box, m, data) => {
  const launches = data.profile.launches, count = m.live.length;
  const top = launches[m.peak_launch];
  add(box, "p", { class: "soft" }, `${bytes(m.peak_bytes)} of the arena's ${bytes(m.arena_bytes)} live at launch ${m.peak_launch} ` +
    `(${top.kernel} of ${place(top)}). Colours are layers; the line is where most is alive.`);
  const W = 1000, H = 380, L = 76, R = 992, T = 8, B = 340;
  const slabs = [];  // one above the other
  for (const t of m.tensors) slabs[t.slab] = Math.max(slabs[t.slab] || 0, t.offset + t.bytes);
  const base = slabs.map((_, i) => slabs.slice(0, i).reduce((a, b) => a + (b || 0), 0));
  const x = scale(0, count, L, R), y = scale(0, slabs.reduce((a, b) => a + (b || 0), 0), B, T);
  const svg = picture(box, W, H, "memory map of the arena");
  axisX(svg, x, x.ticks(10), B, T, (v) => short(v, 5));
  const total = slabs.reduce((a, b) => a + (b || 0), 0), unit = total >= 2 ** 32 ? 2 ** 30 : total >= 2 ** 21 ? 2 ** 20 : 2 ** 10;
  axisY(svg, y, scale(0, total / unit, 0, 1).ticks(6).map((v) => v * unit), L, R, (v) => bytes(v));
  add(svg, "text", { x: R, y: H - 4, "text-anchor": "end" }, "launch");
  const layers = [...new Set(launches.map((l) => l.layer))];
  for (const t of m.tensors) {
    const hue = 360 * layers.indexOf(t.layer) * 0.381966 % 360;
    tip(add(svg, "rect", { x: x(t.first), y: y(base[t.slab] + t.offset + t.bytes), width: Math.max(1, x(t.last + 1) - x(t.first)),
      height: Math.max(0.5, y(base[t.slab] + t.offset) - y(base[t.slab] + t.offset + t.bytes)), fill: `hsl(${hue} 55% 55%)`,
      "fill-opacity": t.backward ? 0.55 : 0.85, stroke: colour("card"), "stroke-width": 0.6 }),
    () => `${t.kernel} of ${place(t)}\n${bytes(t.bytes)}, launches ${t.first} to ${t.last}`);
  }
  const px = x(m.peak_launch + 0.5);
  add(svg, "line", { x1: px, x2: px, y1: T, y2: B, stroke: colour("peak"), "stroke-width": 1.5, "stroke-dasharray": "4 3" });
  add(box, "h2", { style: "margin-top:14px;font-size:15px" }, "At the peak, and beside the arena");
  table(box, [
    { title: "what", left: true, text: (r) => r.what }, { title: "bytes", text: (r) => bytes(r.bytes), by: (r) => r.bytes },
    { title: "launches", text: (r) => r.when }],
  m.at_peak.map((i) => m.tensors[i]).map((t) => ({ what: `${t.kernel} of ${place(t)}`, bytes: t.bytes, when: `${t.first} to ${t.last}` }))
    .concat(m.persistent.map((part) => ({ what: part.what, bytes: part.bytes, when: "always" }))).sort((a, b) => b.bytes - a.bytes), 8);
});
