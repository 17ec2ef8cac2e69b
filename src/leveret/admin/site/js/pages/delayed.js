// Delayed messages on an axis of time, from now to ten years ahead; any stretch of it as a list, in which messages are cancelled and
// get another time.

import { get, path } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { Due } from "../drawing/due.js";
import { LONGEST_MS, niceSpan, rough, Scale } from "../drawing/scale.js";
import { Spread } from "../drawing/spread.js";
import { oneVhost } from "../drawing/vhost.js";
import { number, time, visible } from "../format.js";
import { button } from "../view.js";

const DESTINATIONS = 14; // as buttons; the others are counted
const DESTINATIONS_S = 20; // another pass over all messages, so not as often

export default function delayed(view) {
  const state = { vhost: null, ranges: [], spanMs: null, destination: null, isParked: false };
  const figures = Object.fromEntries(["waiting", "overdue", "parked", "next", "last"].map((name) => [name, h("dd", null, "–")]));
  const spread = new Spread(view, { chosen: (range) => zoom([...state.ranges, range]), left: () => zoom(state.ranges.slice(0, -1)) });
  const back = button("Zoom out", () => zoom(state.ranges.slice(0, -1)), { kind: "small" });
  const whole = button("Show all", () => zoom([]), { kind: "small" });
  const range = h("p", { class: "hint" }), chips = h("div", { class: "chips", role: "group", "aria-label": "Filter by destination" });
  const parked = h("button", { type: "button", class: "chip", "aria-pressed": "false", hidden: true, onclick: () => { state.isParked = !state.isParked; again(); } });
  const due = new Due(view, { vhost: () => state.vhost, fits, changed: again });
  const nothing = h("p", { class: "empty", hidden: true }, "No delayed messages. They are created with a delay layout (leveret delay create) or an exchange of type x-delayed-message.");
  const drawn = h("div", { class: "drawing-page" }, spread.element, chips, due.element);
  let poll = null, rows = null;
  const choice = oneVhost(view, (vhost) => {
    Object.assign(state, { vhost, ranges: [], spanMs: null, destination: null, isParked: false });
    poll ??= view.poll(ask);
    rows ??= view.poll(askRows, { everyS: DESTINATIONS_S });
    again();
  });
  view.show(choice, h("div", { class: "spread-tools" }, h("dl", { class: "spread-figures" }, [
    ["Waiting", figures.waiting], ["Overdue", figures.overdue], ["Parked", figures.parked], ["First due", figures.next], ["Last due", figures.last],
  ].map(([word, said]) => h("div", null, h("dt", null, word), said))), h("div", { class: "tools" }, parked, range, back, whole)), nothing, drawn);

  const current = () => state.ranges.at(-1) ?? null;

  function fits() {
    const found = current();
    return { destination: state.destination, parked: state.isParked || null, ...(found && { due_after_ms: found.fromMs, due_before_ms: found.untilMs }) };
  }

  function zoom(ranges) {
    state.ranges = ranges;
    again();
  }

  function again() {
    say();
    poll.now();
    rows.now();
  }

  async function histogram(scale, signal) {
    const found = current(), edges = scale.edges(spread.bars());
    // while all is shown, edges go on with the broker's clock, which is not the browser's
    const asked = found ? { edges_ms: edges.join() } : { edges_in_ms: edges.map((edge) => edge - scale.nowMs).join() };
    return get(path`delayed/${state.vhost}/histogram`, { query: { destination: state.destination, ...asked }, signal });
  }

  async function ask(signal) {
    const { vhost } = state, range = current();
    if (range === null && state.spanMs === null) {
      const { last_due_ms: last, now_ms: now } = await get(path`delayed/${vhost}/histogram`, { query: { destination: state.destination, edges_in_ms: "0" }, signal });
      state.spanMs = niceSpan(Math.max(0, (last ?? now) - now));
      state.nowMs = now;
    }
    const scale = range ? new Scale(state.nowMs, range.fromMs, range.untilMs) : new Scale(0, 0, state.spanMs);
    const found = await histogram(scale, signal);
    if (vhost !== state.vhost || range !== current()) return;
    state.nowMs = found.now_ms;
    show(found, range);
    await due.refresh(signal);
  }

  function show(found, range) {
    const { counts, edges_ms: edges, now_ms: now, last_due_ms: last } = found;
    spread.show({ scale: new Scale(now, edges[0], edges.at(-1)), edges, counts });
    const inside = counts.slice(1, -1).reduce((sum, each) => sum + each, 0);
    due.setCount(state.isParked ? found.parked : range ? inside : found.messages + found.parked);
    setText(figures.waiting, number(found.messages));
    setText(figures.overdue, range ? "–" : number(counts[0]));
    setText(figures.parked, number(found.parked));
    setText(figures.next, found.next_due_ms ? `${time(found.next_due_ms)} (${distance(found.next_due_ms - now)})` : "–");
    setText(figures.last, last ? `${time(last)} (${distance(last - now)})` : "–");
    figures.overdue.className = counts[0] && !range ? "bad" : "";
    setText(parked, `Only the ${number(found.parked)} that are due but have no route`);
    parked.hidden = found.parked === 0 && !state.isParked;
    const isNothing = found.messages === 0 && found.parked === 0 && state.destination === null;
    nothing.hidden = !isNothing;
    drawn.hidden = isNothing;
    if (range === null) {
      const needed = niceSpan(Math.max(0, (last ?? now) - now));
      if (needed !== state.spanMs) { // the next picture is drawn to scale
        state.spanMs = Math.min(needed, LONGEST_MS);
        poll.now();
      }
    }
    say();
  }

  async function askRows(signal) {
    const { vhost } = state, query = { ...fits(), destination: null, parked: null, columns: "destination,messages,parked" };
    const found = await get(path`delayed/${vhost}`, { query, signal });
    const sums = new Map();
    for (const { destination, messages, parked: stuck } of found) sums.set(destination, (sums.get(destination) ?? 0) + messages + stuck);
    const sorted = [...sums].sort(([one, few], [other, many]) => many - few || one.localeCompare(other)), left = sorted.slice(DESTINATIONS);
    if (state.destination !== null && !sums.has(state.destination)) sorted.unshift([state.destination, 0]);
    const focused = [...chips.children].indexOf(document.activeElement);
    fill(chips, sorted.slice(0, DESTINATIONS).map(([destination, count]) => h("button", {
      type: "button", class: "chip", title: visible(destination), "aria-pressed": String(destination === state.destination), onclick: () => {
        state.destination = destination === state.destination ? null : destination;
        state.spanMs = null;
        again();
      },
    }, `${visible(destination)} ${number(count)}`)), left.length > 0 && h("span", { class: "hint" }, `and ${number(left.length)} destinations with fewer messages`));
    if (focused >= 0) chips.children[focused]?.focus();
  }

  function say() {
    const found = current();
    back.hidden = state.ranges.length < 2;
    whole.hidden = !found;
    parked.setAttribute("aria-pressed", String(state.isParked));
    for (const chip of chips.children) if (chip.tagName === "BUTTON") chip.setAttribute("aria-pressed", String(chip.title === visible(state.destination ?? "", "") && state.destination !== null));
    setText(range, found ? `${time(found.fromMs)} – ${time(found.untilMs)}` : "");
  }
}

const distance = (ms) => (ms <= 0 ? "now" : `in ${rough(ms > 10_000 ? Math.round(ms / 1000) * 1000 : ms)}`);
