// summary.js -- the head of the page, and the five causes a step's time is split into.
part(0, "", (data) => data.profile, (box, p) => {
  add(box, "h1", {}, `${p.model}, batch ${p.batch}`);
  add(box, "p", { class: "soft" }, `${p.program} on ${p.device}, ${p.residency}; ${p.steps} steps measured`);
  const roof = p.launches.reduce((sum, l) => sum + l.roof_seconds, 0);
  const tiles = add(box, "div", { class: "tiles" });
  const tile = (value, name) => { const t = add(tiles, "div", { class: "tile" }); add(t, "b", {}, value); add(t, "span", {}, name); };
  tile(seconds(p.seconds), `a step (median; best ${seconds(p.best_seconds)})`);
  tile(short(p.flops / p.seconds / 1e9) + " GFLOP/s", short(p.flops / 1e9) + " GFLOP a step");
  tile(percent(roof / p.split.wall), "of what the device could do");
  tile(p.counted.launches + " launches", `${p.counted.waits} host waits`);
  tile(bytes(p.counted.bytes_in), `to the device a step, ${bytes(p.counted.bytes_out)} back`);
  tile(bytes(p.memory.peak_bytes), `arena in use at most, of ${bytes(p.memory.arena_bytes)}`);
});

part(10, "Where the time goes", (data) => data.profile, (box, p) => {
  const s = p.split, width = 1000;
  const svg = picture(box, width, 40, "the step's time by cause");
  let x = 0;
  for (const cause of CAUSES) {
    const w = width * s[cause] / s.wall;
    if (w > 0.2) tip(add(svg, "rect", { x, y: 4, width: w, height: 32, fill: colour(cause) }),
      () => `${cause}: ${seconds(s[cause])}, ${percent(s[cause] / s.wall)}`);
    x += w;
  }
  legend(box, CAUSES.map((c) => [c, `${c} ${seconds(s[c])} (${percent(s[c] / s.wall)})`]));
  add(box, "p", { class: "soft", style: "margin-top:10px" },
    `A profiled step took ${seconds(s.wall)}, a plain one beside it ${seconds(p.plain_seconds)}. Launch: nothing runs, though work is ` +
    "queued or being queued. Wait: nothing is left to run and the host is not back yet. Idle: the host does something else.");
  for (const sentence of p.advice) add(box, "p", {}, sentence);
});

part(20, "The costliest launches", (data) => data.profile && data.profile.costliest, (box, list, data) => {
  const p = data.profile, ol = add(box, "ol", { class: "costly" });
  for (const { launch, try: advice } of list) {
    const l = p.launches[launch], item = add(ol, "li");
    add(item, "b", {}, `${l.kernel} of ${place(l)}`);
    item.append(`: ${seconds(l.seconds)}, ${percent(l.seconds / p.split.wall)} of the step, bound by ${l.bound}. `);
    add(item, "span", { class: "soft" }, advice);
  }
});
