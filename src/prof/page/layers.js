// layers.js -- time per layer as bars, forward and backward, and every launch as a table.
part(60, "Layers", (data) => data.profile && data.profile.layers, (box, list, data) => {
  const wall = data.profile.split.wall, rows = list.filter((l) => l.forward + l.backward > 0);
  const W = 1000, L = 190, R = 830, row = 20, H = rows.length * row + 8;
  const x = scale(0, Math.max(...rows.map((l) => l.forward + l.backward)), L, R);
  const hold = add(box, "div", { class: "scroll", style: "max-height:520px;overflow-y:auto" });
  const svg = picture(hold, W, H, "time of each layer");
  rows.forEach((l, i) => {
    const y = 4 + i * row, total = l.forward + l.backward;
    const text = () => `${l.layer}: ${l.launches} launches\nforward ${seconds(l.forward)}, backward ${seconds(l.backward)}\n` +
      `${giga(l.flops, total)} GFLOP/s, ${giga(l.bytes, total)} GB/s, ${percent(reached(l))} of its roofline`;
    add(svg, "text", { x: L - 8, y: y + 13, "text-anchor": "end", class: "strong" }, l.layer.length > 28 ? l.layer.slice(0, 27) + "\u2026" : l.layer);
    tip(add(svg, "rect", { x: L, y, width: x(l.forward) - L, height: row - 5, fill: colour("forward") }), text);
    tip(add(svg, "rect", { x: x(l.forward), y, width: x(total) - x(l.forward), height: row - 5, fill: colour("backward") }), text);
    add(svg, "text", { x: x(total) + 6, y: y + 13 }, `${percent(total / wall)}, ${percent(reached(l))} of roofline`);
  });
  legend(box, [["forward", "forward, loss and update"], ["backward", "backward"]]);
});

part(70, "Launches", (data) => data.profile && data.profile.launches, (box, launches) => {
  const rows = launches.map((l, i) => ({ ...l, i }));
  table(box, [
    { title: "#", text: (l) => l.i, by: (l) => -l.i },
    { title: "kernel", left: true, text: (l) => l.kernel },
    { title: "layer", left: true, text: place },
    { title: "time", text: (l) => seconds(l.seconds), by: (l) => l.seconds },
    { title: "GFLOP/s", text: (l) => giga(l.flops, l.seconds), by: (l) => l.flops / (l.seconds || 1) },
    { title: "GB/s", text: (l) => giga(l.bytes, l.seconds), by: (l) => l.bytes / (l.seconds || 1) },
    { title: "roofline", text: (l) => percent(reached(l)), by: reached },
    { title: "bound by", left: true, text: (l) => l.bound },
    { title: "operands", left: true, text: (l) => l.operands.length > 70 ? l.operands.slice(0, 69) + "\u2026" : l.operands }], rows, 25);
});
