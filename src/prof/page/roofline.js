// roofline.js -- each launch by its arithmetic per byte and the rate it reached, under the roofs measured on the device.
part(30, "Roofline", (data) => data.profile && data.profile.roofline && data.profile, (box, p) => {
  add(box, "p", { class: "soft" }, "Each circle is a launch, its area the time it takes. The slanted lines are the measured " +
    `bandwidths by working set, the level one the peak (${p.roofline.measured}).`);
  const shown = p.launches.filter((l) => l.flops > 0 && l.bytes > 0 && l.seconds > 0);
  if (!shown.length) return;
  const W = 1000, H = 420, L = 64, R = 984, T = 12, B = 380, peak = p.roofline.peak_flops;
  const xs = shown.map((l) => l.flops / l.bytes), ys = shown.map((l) => l.flops / l.seconds);
  const slowest = Math.min(...p.roofline.levels.map((l) => l.bandwidth));
  const x = scale(Math.min(0.05, ...xs) / 1.5, Math.max(peak / slowest * 4, ...xs) * 1.5, L, R, true);
  const low = Math.max(Math.min(...ys), peak / 1e5) / 2;
  const y = scale(low, Math.max(peak, ...ys) * 1.8, B, T, true);
  const svg = picture(box, W, H, "roofline of the step's launches");
  axisX(svg, x, x.ticks(), B, T, (v) => short(v));
  axisY(svg, y, y.ticks(), L, R, (v) => short(v / 1e9));
  add(svg, "text", { x: R, y: H - 4, "text-anchor": "end" }, "FLOP per byte");
  add(svg, "text", { x: 4, y: T + 4, transform: `rotate(-90 12 ${T + 4})`, "text-anchor": "end" }, "GFLOP/s");
  const left = Math.min(...xs, 0.05) / 1.5;
  for (const level of p.roofline.levels) {
    const knee = peak / level.bandwidth, from = Math.max(left, low / level.bandwidth);
    tip(add(svg, "line", { x1: x(from), y1: y(from * level.bandwidth), x2: x(knee), y2: y(peak), stroke: colour("soft"),
      "stroke-width": 1.2, opacity: 0.7 }), () => `${bytes(level.bytes)}: ${short(level.bandwidth / 1e9)} GB/s`);
  }
  for (const level of [p.roofline.levels[0], p.roofline.levels[p.roofline.levels.length - 1]]) {
    const from = Math.max(left, low / level.bandwidth) * 1.1;
    const slope = Math.atan2(y(1) - y(10), x(10) - x(1)) * 180 / Math.PI;
    add(svg, "text", { transform: `translate(${x(from)} ${y(from * level.bandwidth) - 5}) rotate(${-slope})` }, `${bytes(level.bytes)}: ${short(level.bandwidth / 1e9)} GB/s`);
  }
  add(svg, "line", { x1: x(peak / Math.max(...p.roofline.levels.map((l) => l.bandwidth))), y1: y(peak), x2: R, y2: y(peak), stroke: colour("peak"), "stroke-width": 2 });
  add(svg, "text", { x: x(peak / slowest), y: y(peak) - 8, class: "strong" }, `peak ${short(peak / 1e9)} GFLOP/s`);
  const longest = Math.max(...shown.map((l) => l.seconds));
  for (const l of shown.slice().sort((a, b) => b.seconds - a.seconds))
    tip(add(svg, "circle", { cx: x(l.flops / l.bytes), cy: y(Math.max(low, l.flops / l.seconds)), r: 3 + 15 * Math.sqrt(l.seconds / longest),
      fill: colour(l.backward ? "backward" : "forward"), "fill-opacity": 0.55, stroke: colour("card") }),
    () => `${l.kernel} of ${place(l)}\n${seconds(l.seconds)}, ${giga(l.flops, l.seconds)} GFLOP/s, ${giga(l.bytes, l.seconds)} GB/s\n` +
      `${percent(reached(l))} of its roofline, bound by ${l.bound}`);
  legend(box, [["forward", "forward, loss and update"], ["backward", "backward"]]);
});
