// Lines over time, by uPlot: its colours are those of the page, its legend is a list that can be read and clicked.

import { h, setText } from "./dom.js";
import { octets } from "./format.js";

const SAMPLES_MAX = 900;
const BREAK_S = 45; // the reader was elsewhere: nobody knows what was meanwhile, and no line says so
const SPAN_S_MIN = 60;
// steps of an axis: octets by powers of two, everything else as people count
const OCTET_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const COUNT_STEPS = [1, 2, 5]
  .flatMap((_, at, all) => Array.from({ length: 12 }, (__, power) => all[at] * 10 ** power))
  .sort((one, other) => one - other);
const kept = new Map(); // name -> History: charts go on where they were when the reader comes back

/** Samples of several figures over time. */
export class History {
  constructor(names) {
    this.names = names;
    this.times = [];
    this.values = names.map(() => []);
  }

  /** One sample; figures in the order of the names, null where there is none. */
  add(figures, now = Date.now() / 1000) {
    const last = this.times.at(-1);
    if (last !== undefined && now - last > BREAK_S) {
      this.times.push(last + 1);
      for (const list of this.values) list.push(null);
    }
    this.times.push(now);
    for (const [at, list] of this.values.entries()) list.push(figures[at] ?? null);
    if (this.times.length > SAMPLES_MAX) for (const list of [this.times, ...this.values]) list.shift();
  }
}

/** The history of this name in this tab. */
export function historyOf(name, names) {
  let found = kept.get(name);
  if (!found) kept.set(name, (found = new History(names)));
  return found;
}

/** Forget all: somebody else is here now. */
export function forgetHistories() {
  kept.clear();
}

/** Counters to rates: per second since the last call, null at first and where a counter went back. */
export class Rates {
  constructor() {
    this.before = null;
  }
  of(counters, nowMs = performance.now()) {
    const before = this.before,
      spanS = before ? (nowMs - before.nowMs) / 1000 : 0;
    this.before = { counters, nowMs };
    return counters.map((value, at) =>
      before && spanS > 0 && value >= before.counters[at] ? (value - before.counters[at]) / spanS : null,
    );
  }
}

const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);

/** From the first sample to the last one, but a minute at least: of a single one uPlot would make a day. */
function span(times) {
  const to = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(times[0] ?? to, to - SPAN_S_MIN), to];
}

/** The samples that no line leads to: they are drawn as points. null: none. */
function lonely(list) {
  const found = [...list.keys()].filter((at) => list[at] !== null && (list[at - 1] ?? null) === null && (list[at + 1] ?? null) === null);
  return found.length ? found : null;
}

/** Draws a History. series: [{label, colour: name of a custom property}], format(value) for the axis and the legend. */
export class Chart {
  constructor(view, { title, history, series, format, height = 190 }) {
    this.history = history;
    this.format = format;
    this.series = series;
    this.values = series.map(() => h("b", { class: "figure" }, "–"));
    this.hidden = series.map(() => false);
    this.plot = h("div", { class: "plot", role: "img", "aria-label": title, style: { height: `${height}px` } });
    const legend = h(
      "ul",
      { class: "legend" },
      series.map(({ label, colour }, at) =>
        h(
          "li",
          null,
          h(
            "button",
            {
              class: "legend-item",
              aria: { pressed: "true" },
              onclick: (event) => this.toggle(at, event.currentTarget),
            },
            h("i", { class: "swatch", style: { background: `var(${colour})` } }),
            label,
            this.values[at],
          ),
        ),
      ),
    );
    this.element = h("figure", { class: "chart" }, h("figcaption", null, h("h3", null, title), legend), this.plot);
    this.height = height;
    const sizes = new ResizeObserver(() => this.resize());
    sizes.observe(this.plot);
    const scheme = matchMedia("(prefers-color-scheme: dark)"),
      again = () => {
        this.uplot?.destroy();
        this.uplot = null;
        this.resize();
      };
    scheme.addEventListener("change", again, { signal: view.signal });
    document.addEventListener("themechange", again, { signal: view.signal });
    view.signal.addEventListener("abort", () => {
      sizes.disconnect();
      this.uplot?.destroy();
    });
  }

  toggle(at, button) {
    this.hidden[at] = !this.hidden[at];
    button.setAttribute("aria-pressed", String(!this.hidden[at]));
    this.uplot?.setSeries(at + 1, { show: !this.hidden[at] });
  }

  resize() {
    const width = Math.floor(this.plot.clientWidth);
    if (!width) return;
    if (this.uplot) this.uplot.setSize({ width, height: this.height });
    else this.make(width);
  }

  make(width) {
    const css = getComputedStyle(document.documentElement),
      colour = (name) => css.getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--muted"),
      font: `11px ${colour("--font")}`,
      gap: 4,
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
    };
    this.uplot = new window.uPlot(
      {
        width,
        height: this.height,
        legend: { show: false },
        padding: [8, 6, 0, 0],
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: { range: () => span(this.history.times) },
          y: { range: (_, least, most) => [0, Math.max(most * 1.1, 4)] },
        },
        axes: [
          { ...axis, space: 70, size: 24, values: (_, ticks) => ticks.map(clock) },
          {
            ...axis,
            size: 62,
            space: 34,
            incrs: this.format === octets ? OCTET_STEPS : COUNT_STEPS,
            values: (_, ticks) => ticks.map((each) => this.format(each)),
          },
        ],
        series: [
          {},
          ...this.series.map(({ label, colour: name }, at) => ({
            label,
            stroke: colour(name),
            width: 1.75,
            fill: at === 0 ? `${colour(name)}18` : undefined,
            points: { show: false, size: 5, width: 0, fill: colour(name), filter: (plot, series) => lonely(plot.data[series]) },
            spanGaps: false,
            show: !this.hidden[at],
          })),
        ],
        hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)] },
      },
      this.data(),
      this.plot,
    );
    this.read(null);
  }

  data() {
    return [this.history.times, ...this.history.values];
  }

  /** Draw what the history has now. */
  update() {
    this.uplot?.setData(this.data());
    if (!this.uplot) this.resize();
    this.read(this.uplot?.cursor.idx ?? null);
  }

  read(index) {
    const at = index ?? this.history.times.length - 1;
    for (const [each, list] of this.history.values.entries())
      setText(this.values[each], list[at] === null || list[at] === undefined ? "–" : this.format(list[at]));
  }
}
