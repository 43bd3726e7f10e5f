// timeline.js -- what ran on the device and what the host did meanwhile, over the first profiled steps.
part(40, "Timeline", (data) => data.profile && data.profile.timeline, (box, t, data) => {
  const launches = data.profile.launches, H = 132, L = 64;
  const row = add(box, "p", { class: "soft" }, "The first profiled steps. ");
  const hold = add(box, "div", { class: "scroll" });
  let width = 1000;
  const draw = () => {
    hold.replaceChildren();
    const svg = picture(hold, width, H, "timeline of the device and the host");
    const x = scale(0, t.seconds, L, width - 8);
    axisX(svg, x, x.ticks(Math.round(width / 120)), 106, 8, (v) => short(v * 1e3, 4));
    add(svg, "text", { x: width - 8, y: H - 2, "text-anchor": "end" }, "ms");
    add(svg, "text", { x: 4, y: 34, class: "strong" }, "device");
    add(svg, "text", { x: 4, y: 86, class: "strong" }, "host");
    const bar = (start, length, y, height, fill, text) => tip(add(svg, "rect", { x: x(start), y, width: Math.max(0.4, x(start + length) - x(start)),
      height, fill: colour(fill), stroke: colour("card"), "stroke-width": 0.3 }), text);
    for (const [kind, launch, start, length] of t.events) {
      const l = kind === "kernel" ? launches[launch] : null;
      bar(start, length, 12, 40, kind !== "kernel" ? "movement" : l && l.backward ? "backward" : "forward",
        () => l ? `${l.kernel} of ${place(l)}\n${seconds(length)}` : `${kind}\n${seconds(length)}`);
    }
    for (const [kind, start, length] of t.host)
      bar(start, length, 66, 34, kind === "blocked" ? "wait" : "launch", () => `host ${kind}\n${seconds(length)}`);
  };
  const button = (text, change) => add(row, "button", { class: "plain", type: "button" }, text).addEventListener("click", () => {
    const middle = (hold.scrollLeft + hold.clientWidth / 2) / width;
    width = Math.max(1000, Math.min(32000, width * change));
    draw();
    hold.scrollLeft = middle * width - hold.clientWidth / 2;
  });
  button("wider", 2);
  row.append(" ");
  button("narrower", 0.5);
  draw();
  legend(box, [["forward", "kernel"], ["backward", "kernel, backward"], ["movement", "copy"], ["launch", "host queueing"], ["wait", "host blocked"]]);
});
