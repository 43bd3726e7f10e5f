// losses.js -- loss over the steps.
part(80, "Loss", (data) => data.profile && data.profile.losses && data.profile.losses.filter((c) => c.points.length > 1), (box, curves) => {
  const W = 1000, H = 300, L = 64, R = 984, T = 10, B = 264;
  const all = curves.flatMap((c) => c.points).filter(([, loss]) => loss !== null && isFinite(loss));
  const x = scale(0, Math.max(...all.map((p) => p[0])), L, R);
  const least = Math.min(...all.map((p) => p[1])), most = Math.max(...all.map((p) => p[1])), room = 0.08 * (most - least) || 1;
  const y = scale(Math.min(least, Math.max(0, least - room)), most + room, B, T);
  const svg = picture(box, W, H, "loss over the steps");
  axisX(svg, x, x.ticks(10), B, T, (v) => short(v, 6));
  axisY(svg, y, y.ticks(6), L, R, (v) => short(v));
  add(svg, "text", { x: R, y: H - 4, "text-anchor": "end" }, "step");
  const names = ["forward", "movement", "backward", "wait"];
  curves.forEach((c, i) => {
    const points = c.points.filter(([, loss]) => loss !== null && isFinite(loss));
    add(svg, "polyline", { points: points.map(([s, l]) => `${x(s)},${y(l)}`).join(" "), fill: "none", stroke: colour(names[i % 4]), "stroke-width": 2 });
    for (const [s, l] of points.length > 200 ? [] : points)
      tip(add(svg, "circle", { cx: x(s), cy: y(l), r: 3, fill: colour(names[i % 4]) }), () => `${c.name}\nstep ${s}: ${short(l, 4)}`);
  });
  legend(box, curves.map((c, i) => [names[i % 4], c.name]));
});
