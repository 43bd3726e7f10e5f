// lessons.js -- `situ lessons`: each stage's step on OpenCL by cause and on the CPU, and the study's phones below.
part(1, "", (data) => !data.profile && data.lessons, (box) => {
  add(box, "h1", {}, "Where a training step's time goes");
});

part(90, "Lessons: one cause less at a time", (data) => data.lessons, (box, lessons) => {
  add(box, "p", { class: "soft" }, `opencl: ${lessons.opencl}, driver ${lessons.driver}; cpu: ${lessons.cpu}. Whole training steps, ` +
    `best of several blocks. The study's rows (${lessons.study.source}) are backward passes on its phones.`);
  const causes = CAUSES;
  legend(box, causes.map((c) => [c, c === "compute" ? "kernels run" : c]).concat([["backward", "cpu"], ["soft", "the study"]]));
  for (const model of lessons.models) drawLesson(box, model, lessons.study.times.filter((t) => t.model === model.model), causes);
  add(box, "h2", { style: "margin-top:14px;font-size:15px" }, "Stages");
  table(box, [{ title: "stage", left: true, text: (s) => s.name }, { title: "what changes", left: true, text: (s) => s.what }], lessons.stages);
});

function drawLesson(box, model, study, causes) {
  add(box, "h2", { style: "margin-top:18px;font-size:15px" }, model.title);
  const W = 1000, L = 215, R = 610, row = 30, stages = Object.entries(model.stages);
  const H = stages.length * row + study.length * 22 + 34;
  const most = Math.max(...stages.flatMap(([, s]) => [s.opencl, s.cpu].filter(Boolean).map((e) => e.ms)), ...study.map((t) => t.gpu_us / 1e3));
  const x = scale(0, most, L, R), svg = picture(box, W, H, "time of a step in each stage of " + model.model);
  axisX(svg, x, x.ticks(6), H - 24, 4, (v) => short(v) + " ms");
  const bar = (y, height, from, to, fill, text) => tip(add(svg, "rect", { x: x(from), y, width: Math.max(0.5, x(to) - x(from)), height, fill: colour(fill) }), text);
  stages.forEach(([name, { opencl, cpu }], i) => {
    const y = 6 + i * row;
    add(svg, "text", { x: L - 8, y: y + 14, "text-anchor": "end", class: "strong" }, name);
    let from = 0;
    for (const cause of causes) {
      const to = from + opencl.ms * opencl[cause];
      bar(y, 13, from, to, cause, () => `${name} on opencl: ${short(opencl.ms)} ms\n${cause} ${percent(opencl[cause])}`);
      from = to;
    }
    if (cpu) bar(y + 14, 7, 0, cpu.ms, "backward", () => `${name} on the cpu: ${short(cpu.ms)} ms`);
    add(svg, "text", { x: Math.max(x(from), x(cpu ? cpu.ms : 0)) + 6, y: y + 14 },
      `${short(opencl.ms)} ms, ${short(opencl.ms / model.best_cpu_ms)} times the cpu; ${opencl.launches} launches, ${opencl.waits} waits, ` +
      bytes(opencl.bytes_in + opencl.bytes_out));
  });
  study.forEach((t, i) => {
    const y = 8 + stages.length * row + i * 22, text = () => `${t.phone} (${t.chip}, ${t.gpu}), backward pass\n` +
      `GPU ${short(t.gpu_us)} \u00b5s, with better kernels ${short(t.gpu_improved_us)} \u00b5s, CPU ${short(t.cpu_us)} \u00b5s`;
    add(svg, "text", { x: L - 8, y: y + 11, "text-anchor": "end" }, `${t.phone}, ${t.gpu}`);
    bar(y, 12, 0, t.gpu_us / 1e3, "soft", text);
    add(svg, "text", { x: x(t.gpu_us / 1e3) + 6, y: y + 11 }, `${short(t.gpu_us / 1e3)} ms, ${short(t.gpu_us / t.cpu_us)} times its cpu`);
  });
}
