// Rollouts over time: each is a bar from its beginning to its end, in the first lane that was free.

const LANE_PX = 9;
const AXIS_PX = 30;
const STATUS_COLOURS = { scored: "calm", truncated: "cut", errored: "broken", missing: "gone" };

class Timeline {
  constructor(lines, open) {
    Object.assign(this, { lines, open, plots: [] });
    this.runs = lines.sides.map((side, at) => ({ side, at, bars: lanes(side) })).filter(({ bars }) => bars.length);
    this.end = Math.max(0, ...this.runs.flatMap(({ bars }) => bars.map(({ to }) => to)));
    this.tip = make("div", { class: "tip", hidden: "" });
    document.body.append(this.tip);
    const none = this.runs.length ? null : make("p", { class: "none" }, "No record of this run tells when its rollouts began.");
    this.places = this.runs.map(({ bars, at }) => make("div", { class: "lanes", role: "img", "aria-label": inWords(bars, lines.paired ? "AB"[at] : "") }));
    byId("lanes").replaceChildren(...(none ? [none] : [this.swatches(), ...this.runs.flatMap(({ at }, number) => [this.tag(at), this.places[number]]).filter(Boolean)]));
    new ResizeObserver(() => this.resize()).observe(byId("lanes"));
  }

  swatches() {
    const found = new Set(this.runs.flatMap(({ bars }) => bars.map(({ status }) => status)));
    return make("p", { class: "swatches" }, ...Object.keys(STATUS_COLOURS).filter((status) => found.has(status)).map((status) => make("span", { class: status }, status)));
  }

  tag(at) {
    return this.lines.paired && make("b", { class: "tag", "data-side": "ab"[at] }, "AB"[at]);
  }

  draw() {
    for (const plot of this.plots) plot.destroy();
    this.plots = this.runs.map((run, at) => this.plot(run, this.places[at]));
  }

  resize() {
    for (const plot of this.plots) plot.setSize({ width: byId("lanes").clientWidth, height: plot.height });
  }

  plot({ side, at, bars }, place) {
    const count = Math.max(...bars.map(({ lane }) => lane)) + 1;
    const colours = Object.fromEntries(Object.entries(STATUS_COLOURS).map(([status, name]) => [status, colour(name)]));
    const height = AXIS_PX + Math.max(30, Math.min(260, count * LANE_PX));
    const paths = (plot) => {
      const { ctx } = plot;
      const tall = plot.bbox.height / count;
      ctx.save();
      ctx.beginPath();
      ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
      ctx.clip();
      for (const { from, to, lane, status } of bars) {
        const left = plot.valToPos(from, "x", true);
        const right = plot.valToPos(to, "x", true);
        ctx.fillStyle = colours[status];
        ctx.fillRect(left, plot.bbox.top + lane * tall, Math.max(1, right - left - 1), Math.max(1, tall - 1));
      }
      ctx.restore();
      return null;
    };
    const plot = new uPlot(
      {
        width: byId("lanes").clientWidth || 800,
        height,
        legend: { show: false },
        padding: [0, 16, 0, 16],
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
        scales: { x: { time: false, range: (_, low, high) => (low === null ? [0, this.end] : [low, high]) }, y: { range: [0, count] } },
        series: [{}, { paths, points: { show: false } }],
        axes: [axis({ values: (_, splits) => splits.map(seconds), space: 90, size: AXIS_PX - 4 }), axis({ values: () => [], grid: { show: false }, size: 2 })],
      },
      [[0, this.end], [0, 0]],
      place,
    );
    this.point(plot, side, at, bars, count);
    return plot;
  }

  // Say what is under the pointer, and open it.
  point(plot, side, at, bars, count) {
    const under = (event) => {
      const box = plot.over.getBoundingClientRect();
      const time = plot.posToVal(event.clientX - box.left, "x");
      const lane = Math.floor(((event.clientY - box.top) / box.height) * count);
      return bars.find((bar) => bar.lane === lane && bar.from <= time && time <= bar.to);
    };
    plot.over.addEventListener("mousemove", (event) => {
      const bar = under(event);
      this.tip.hidden = !bar;
      if (!bar) return;
      this.tip.textContent = `${side.get("key", bar.row)}: ${bar.status}, ${seconds(bar.to - bar.from)} from ${seconds(bar.from)}`;
      this.tip.style.setProperty("left", `${Math.min(event.clientX + 12, innerWidth - 300)}px`);
      this.tip.style.setProperty("top", `${event.clientY + 14}px`);
    });
    plot.over.addEventListener("mouseleave", () => (this.tip.hidden = true));
    plot.over.addEventListener("click", (event) => {
      const bar = under(event);
      if (bar) this.open(at, bar.row);
    });
  }
}

// The bars of a run whose rows tell when they began, each in the first lane that was free then.
function lanes(side) {
  const bars = [];
  for (let row = 0; row < side.rows; row += 1) {
    const from = side.columns.started[row];
    const took = side.columns.seconds[row];
    if (isNumber(from) && isNumber(took)) bars.push({ row, from, to: from + took, status: side.get("status", row), lane: 0 });
  }
  bars.sort((a, b) => a.from - b.from);
  const free = [];
  for (const bar of bars) {
    const lane = free.findIndex((until) => until <= bar.from + 1e-9);
    bar.lane = lane < 0 ? free.length : lane;
    free[bar.lane] = bar.to;
  }
  return bars;
}

function inWords(bars, letter) {
  const most = Math.max(...bars.map(({ lane }) => lane)) + 1;
  const end = Math.max(...bars.map(({ to }) => to));
  return `Timeline${letter && ` of ${letter}`}: ${whole(bars.length)} rollouts in ${seconds(end)}, at most ${most} at once`;
}
