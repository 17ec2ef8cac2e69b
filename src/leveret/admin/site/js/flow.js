// How many messages pass an object, as columns of a table. The broker measures a rate between two looks at a counter, and says 0 after
// the first one: such a 0 is shown as unknown.

import { rate } from "./format.js";
import { at } from "./sources.js";

const SURE_MS = 1500; // two looks that are closer together say nothing
const BREAK_MS = 45_000; // a counter that nobody looked at for so long is measured anew

/** The rates of one page's rows, which are told apart by virtual host and name, or by key(row). */
export class Speeds {
  constructor(key = (row) => `${row.vhost ?? ""}\n${row.name}`) {
    this.key = key;
    this.looks = new Map(); // row and counter -> when it was first looked at, and last
    this.figures = new WeakMap(); // an answer's row -> its figures: what is drawn again says the same again
  }

  /** Per second; null while it is not known. name: of the counter, as "message_stats.publish". */
  figure(row, name) {
    let said = this.figures.get(row);
    if (!said) this.figures.set(row, (said = new Map()));
    if (!said.has(name)) said.set(name, this.look(row, name));
    return said.get(name);
  }

  look(row, name) {
    const found = at(row, `${name}_details.rate`);
    if (found === undefined || found === null) return 0; // nothing was ever counted
    const key = `${this.key(row)}\n${name}`,
      nowMs = performance.now(),
      before = this.looks.get(key),
      firstMs = before && nowMs - before.lastMs <= BREAK_MS ? before.firstMs : nowMs;
    this.looks.set(key, { firstMs, lastMs: nowMs });
    return found === 0 && nowMs - firstMs < SURE_MS ? null : found;
  }

  /** Of several rows together; null while one is not known. */
  sum(rows, name) {
    const figures = rows.map((row) => this.figure(row, name));
    return figures.includes(null) ? null : figures.reduce((total, each) => total + each, 0);
  }

  /** The same as text. */
  text(row, name) {
    return rate(this.figure(row, name));
  }
}

/** Columns for what has message_stats. */
export function flow() {
  const speeds = new Speeds();
  return [
    ["In /s", "publish", true],
    ["Out /s", "deliver_get", true],
    ["Ack /s", "ack", false],
  ].map(([title, name, phone]) => ({
    title,
    sort: `message_stats.${name}_details.rate`,
    end: true,
    width: "6rem",
    phone,
    cell: (row) => speeds.text(row, `message_stats.${name}`),
  }));
}
