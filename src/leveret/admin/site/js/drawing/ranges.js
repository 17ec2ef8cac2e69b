// Horizontal bars that show where something stands between a beginning and an end: offsets of a stream, how far its readers are.

import { h } from "../dom.js";

/** One bar. name, note: of the row; parts: [{from, until, kind, title}] between low and high; end: what is said at its end. */
export function range({ name, note = null, parts, low, high, end = "", label }) {
  const span = Math.max(1, high - low), share = (value) => Math.max(0, Math.min(100, ((value - low) / span) * 100));
  return h("div", { class: "range" }, h("div", { class: "range-name" }, name, note && h("small", null, note)),
    h("div", { class: "range-track", role: "img", "aria-label": label }, parts.filter(({ from, until }) => until > from).map(({ from, until, kind, title }) => h("div", {
      class: `range-part thin ${kind}`, title, style: { left: `${share(from)}%`, width: `${share(until) - share(from)}%` },
    }))), h("div", { class: "range-end" }, end));
}
