// Distributions of the lines in sight: tokens, time and, where they are not all 0 or 1, rewards.

const BINS = 36;
const CHART_HEIGHT = 170;

const quantile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];

const MEASURES = [
  { column: "tokens", title: "Tokens generated", unit: whole, least: 0, round: true },
  { column: "seconds", title: "Time of a rollout", unit: seconds, least: 0 },
  { column: "reward", title: "Rewards", unit: reward, least: 0, skip: (values) => values.every((value) => value === 0 || value === 1) },
];

class Histograms {
  constructor(lines) {
    this.lines = lines;
    this.plots = [];
    this.charts = MEASURES.flatMap((measure) => this.begin(measure));
    byId("charts").replaceChildren(...this.charts.map(({ figure }) => figure));
    new ResizeObserver(() => this.resize()).observe(byId("charts"));
  }

  // A chart with the bins of all lines, so that a filter changes heights and not what they stand for.
  begin(measure) {
    const all = this.lines.sides.flatMap(({ columns }) => (columns[measure.column] ?? []).filter(isNumber));
    if (measure.skip?.(all)) return [];
    const place = make("div");
    const caption = make("div");
    const figure = make("figure", { class: "chart" }, make("h3", {}, measure.title), caption, place);
    if (!all.length) {
      caption.append(make("p", { class: "none" }, "No record of this run tells it."));
      return [{ figure }];
    }
    all.sort((a, b) => a - b);
    const low = Math.min(measure.least, all[0]);
    const high = quantile(all, 0.995);
    let width = (high - low) / BINS || 1;
    if (measure.round) width = Math.max(1, Math.ceil(width));
    const bins = Math.max(1, Math.min(BINS, Math.floor((high - low) / width) + 1));
    return [{ measure, figure, place, caption, low, width, bins, beyond: all.at(-1) >= low + width * bins }];
  }

  draw(shown) {
    this.shown = shown;
    for (const plot of this.plots) plot.destroy();
    this.plots = this.charts.filter(({ measure }) => measure).map((chart) => this.plot(chart, shown));
  }

  resize() {
    for (const plot of this.plots) plot.setSize({ width: plot.root.parentElement.clientWidth, height: CHART_HEIGHT });
  }

  plot(chart, shown) {
    const { measure, low, width, bins } = chart;
    const counts = this.lines.sides.map(() => new Array(bins).fill(0));
    const values = this.lines.sides.map(() => []);
    for (const line of shown) {
      this.lines.both(measure.column, line).forEach((value, at) => {
        if (!isNumber(value)) return;
        values[at].push(value);
        counts[at][Math.max(0, Math.min(bins - 1, Math.floor((value - low) / width)))] += 1;
      });
    }
    this.say(chart, values);
    const edges = Array.from({ length: bins }, (_, at) => low + at * width);
    const series = counts.map((_, at) => ({
      label: at ? "B" : "A",
      stroke: colour("ab"[at]),
      width: at ? 1.5 : 1,
      fill: at ? undefined : colour("a-fill"),
      points: { show: false },
      paths: at ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.bars({ size: [1, Infinity], align: 1, gap: 1 }),
    }));
    const ends = [edges[0], edges[0] + bins * width];
    const data = [[...edges, ends[1]], ...counts.map((column, at) => [...column, at ? column.at(-1) : null])];
    return new uPlot(
      {
        width: chart.place.clientWidth || 320,
        height: CHART_HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { time: false, range: () => ends }, y: { range: (_, __, most) => [0, Math.max(1, most) * 1.05] } },
        series: [{}, ...series],
        axes: [axis({ size: 24, values: (_, splits) => splits.map((value) => (value === null ? "" : short(value))) }), axis({ size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000] })],
      },
      data,
      chart.place,
    );
  }

  // The chart in words, for whoever does not see it, and as a caption for whoever does.
  say(chart, values) {
    const { unit, title } = chart.measure;
    const told = values.map((column, at) => {
      const sorted = column.sort((a, b) => a - b);
      const name = this.lines.paired ? `${"AB"[at]}: ` : "";
      if (!sorted.length) return `${name}no value in sight`;
      const middle = `median ${unit(quantile(sorted, 0.5))}, 9 of 10 up to ${unit(quantile(sorted, 0.9))}`;
      return `${name}${middle}, most ${unit(sorted.at(-1))}`;
    });
    const keys = told.map((text, at) => make("span", { class: this.lines.paired ? "key" : null, "data-side": "ab"[at] }, text));
    const beyond = chart.beyond && make("span", {}, "The last bar holds what lies beyond it");
    chart.caption.replaceChildren(make("p", {}, ...keys, beyond));
    chart.place.setAttribute("role", "img");
    chart.place.setAttribute("aria-label", `${title}: ${told.join("; ")}`);
  }
}

const short = (value) => (value >= 10000 ? `${Math.round(value / 1000)}k` : Number.isInteger(value) ? String(value) : value.toFixed(value < 1 ? 2 : 1));

// An axis in the page's own type and colours.
const axis = (more) => ({
  stroke: colour("soft"),
  font: `11px ${getComputedStyle(document.body).fontFamily}`,
  grid: { stroke: colour("line"), width: 1 },
  ticks: { show: false },
  gap: 4,
  ...more,
});
