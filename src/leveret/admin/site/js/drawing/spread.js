// How delayed messages are spread over time: bars on an axis from now to the last of them, a stretch of which can be chosen with
// the pointer or the keyboard.

import { fill, h, svg } from "../dom.js";
import { number, time } from "../format.js";
import { rough } from "./scale.js";

const HEIGHT = 272;
const LEFT = 46;
const RIGHT = 14;
const TOP = 22;
const BOTTOM = 26;
const TICK_PX = 84;
const CLICK_PX = 4;

/** Four lines at round counts. */
function levels(most) {
  const rough = Math.max(1, most / 4), power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
  return Array.from({ length: Math.floor(most / step) }, (_, at) => (at + 1) * step);
}

/** chosen({fromMs, untilMs}): a stretch was chosen; left(): the reader wants out of it again. show({scale, edges, counts}). */
export class Spread {
  constructor(view, { chosen, left }) {
    Object.assign(this, { chosen, left, active: null, anchor: null, drag: null, found: null });
    this.said = h("p", { class: "spread-said", aria: { live: "polite" } });
    this.title = svg("title", null, "Delayed messages by due time");
    this.desc = svg("desc");
    this.body = svg("g");
    this.svg = svg("svg", {
      class: "spread-svg", tabindex: "0", role: "group", "aria-roledescription": "histogram", "aria-label": "Delayed messages by due time. Arrow keys move between bars, Shift selects several, Enter zooms in, Escape zooms out.",
      onkeydown: (event) => this.key(event), onpointerdown: (event) => this.down(event), onpointermove: (event) => this.move(event),
      onpointerup: (event) => this.up(event), onpointercancel: () => this.cancel(), onpointerleave: () => { if (!this.drag) this.point(null); },
    }, this.title, this.desc, this.body);
    this.rows = h("tbody");
    const table = h("details", { class: "drawing-table" }, h("summary", null, "Show as a table"), h("div", { class: "plain-scroll" }, h("table", { class: "plain" },
      h("thead", null, h("tr", null, [["From"], ["Until"], ["Messages", "end"]].map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))), this.rows)));
    this.element = h("section", { class: "spread" }, this.svg, this.said, table);
    const sizes = new ResizeObserver(() => this.draw());
    sizes.observe(this.svg);
    view.signal.addEventListener("abort", () => sizes.disconnect());
  }

  /** How many bars there is room for. */
  bars() {
    return Math.max(24, Math.min(120, Math.floor((this.svg.clientWidth - LEFT - RIGHT) / 9) || 60));
  }

  /** counts: of what is due before the first edge, of each bar, and at the last edge or later. */
  show(found) {
    if (this.drag) return; // it would move under the pointer
    this.found = found;
    this.draw();
    this.tabulate();
  }

  x(at) {
    return LEFT + at * (this.width - LEFT - RIGHT);
  }

  draw() {
    this.width = this.svg.clientWidth;
    if (!this.width || !this.found) return;
    const { scale, edges, counts } = this.found, bars = counts.slice(1, -1), most = Math.max(1, ...bars);
    const floor = HEIGHT - BOTTOM, tall = floor - TOP, y = (count) => floor - (count / most) * tall;
    this.places = edges.map((edge) => this.x(scale.at(edge)));
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.desc.textContent = `${number(bars.reduce((sum, each) => sum + each, 0))} messages between ${time(scale.fromMs)} and ${time(scale.untilMs)}.`;
    const hits = bars.map((_, at) => svg("rect", { class: "hit", x: this.places[at], y: TOP, width: Math.max(1, this.places[at + 1] - this.places[at]), height: tall }));
    this.hits = hits;
    fill(this.body,
      levels(most).map((level) => [svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(level), y2: y(level) }),
        svg("text", { class: "tick", x: LEFT - 7, y: y(level) + 4, "text-anchor": "end" }, compact(level))]),
      hits,
      bars.map((count, at) => count > 0 && svg("rect", {
        class: "bar-due", x: this.places[at] + 0.75, width: Math.max(1.5, this.places[at + 1] - this.places[at] - 1.5), rx: 1.5,
        y: Math.min(floor - 2, y(count)), height: Math.max(2, floor - y(count)), dataset: { count },
      }, svg("title", null, this.text(at, at)))),
      svg("line", { class: "axis", x1: LEFT, x2: this.width - RIGHT, y1: floor, y2: floor }),
      scale.ticks(TICK_PX / (this.width - LEFT - RIGHT)).map(({ at, text }) => [svg("line", { class: "axis", x1: this.x(at), x2: this.x(at), y1: floor, y2: floor + 5 }),
        svg("text", { class: "tick", x: this.x(at), y: floor + 19, "text-anchor": at < 0.04 ? "start" : at > 0.96 ? "end" : "middle" }, text)]));
    this.mark();
  }

  tabulate() {
    const { edges, counts } = this.found;
    const some = counts.slice(1, -1).map((count, at) => [edges[at], edges[at + 1], count]).filter(([, , count]) => count > 0);
    fill(this.rows, some.map(([from, until, count]) => h("tr", null, h("td", null, time(from)), h("td", null, time(until)), h("td", { class: "end" }, number(count)))));
  }

  // -- which bars

  /** What bars from one to another have. */
  text(first, last) {
    const { edges, counts, scale } = this.found, count = counts.slice(first + 1, last + 2).reduce((sum, each) => sum + each, 0);
    const from = edges[first], until = edges[last + 1];
    return `${number(count)} ${count === 1 ? "message" : "messages"} due ${from <= scale.nowMs ? "now" : `in ${rough(from - scale.nowMs)}`} to ${rough(Math.max(1, until - scale.nowMs))} (${time(from)} – ${time(until)})`;
  }

  span() {
    const other = this.anchor ?? this.active;
    return [Math.min(this.active, other), Math.max(this.active, other)];
  }

  point(bar) {
    if (!this.drag) this.anchor = null;
    this.active = bar;
    this.mark();
  }

  mark() {
    const [first, last] = this.active === null || !this.found ? [1, 0] : this.span();
    this.hits?.forEach((hit, at) => hit.classList.toggle("active", at >= first && at <= last));
    const text = first > last ? "" : this.text(first, Math.min(last, this.hits.length - 1));
    if (this.said.textContent !== text) this.said.textContent = text;
  }

  barAt(event) {
    const x = (event.clientX - this.svg.getBoundingClientRect().left) * (this.width / this.svg.clientWidth);
    const at = this.places.findIndex((place) => place > x) - 1;
    return Math.max(0, Math.min(this.hits.length - 1, at === -2 ? this.hits.length - 1 : at));
  }

  choose() {
    const [first, last] = this.span(), { edges } = this.found;
    this.active = this.anchor = null;
    this.mark();
    if (edges[last + 1] - edges[first] > 1) this.chosen({ fromMs: edges[first], untilMs: edges[last + 1] });
  }

  // -- pointer

  down(event) {
    if (!this.found || event.button !== 0) return;
    const bar = this.barAt(event);
    this.drag = { x: event.clientX };
    this.anchor = this.active = bar;
    this.svg.setPointerCapture(event.pointerId);
    this.mark();
  }

  move(event) {
    if (!this.found) return;
    const bar = this.barAt(event);
    if (bar === this.active && !this.drag) return;
    if (this.drag) this.active = bar;
    else this.point(bar);
    this.mark();
  }

  up(event) {
    if (!this.drag) return;
    const isClick = Math.abs(event.clientX - this.drag.x) < CLICK_PX;
    this.drag = null;
    const count = this.found.counts.slice(this.span()[0] + 1, this.span()[1] + 2).reduce((sum, each) => sum + each, 0);
    if (isClick && count === 0) this.point(null);
    else this.choose();
  }

  cancel() {
    this.drag = null;
    this.point(null);
  }

  // -- keys

  key(event) {
    if (!this.found || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.hits.length - 1, at = this.active ?? -1;
    const to = { ArrowRight: Math.min(last, at + 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: last }[event.key];
    if (to !== undefined) {
      this.anchor = event.shiftKey ? this.anchor ?? Math.max(0, at) : null;
      this.active = to;
      this.mark();
    } else if (event.key === "Enter" && this.active !== null) this.choose();
    else if (event.key === "Escape" || event.key === "Backspace") this.left();
    else return;
    event.preventDefault();
  }
}

function compact(count) {
  if (count >= 1e6) return `${+(count / 1e6).toFixed(1)} M`;
  return count >= 1e4 ? `${+(count / 1e3).toFixed(1)} k` : number(count);
}
