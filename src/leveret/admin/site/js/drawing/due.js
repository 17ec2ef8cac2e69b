// Single delayed messages, those that are due first in front: picked, cancelled, given another time. What is about to be changed is
// counted by the broker before anybody is asked.

import { del, get, path, put } from "../api.js";
import { confirm, notify } from "../dialog.js";
import { h, setText } from "../dom.js";
import { ask } from "../form.js";
import { number, octets, time, visible } from "../format.js";
import { button } from "../view.js";
import { keep } from "./keep.js";
import { rough } from "./scale.js";

const SHOWN = 100;
const SHOWN_MAX = 2000;
const UNITS = [["1000", "seconds"], ["60000", "minutes"], ["3600000", "hours"], ["86400000", "days"]];
const HEAD = [["", "pick-head"], ["Due"], ["In"], ["Destination"], ["Id"], ["Key", "wide"], ["Layout", "wide"], ["Size", "end wide"]];

/** What a change of these messages must say: [{query, body}], each message in one of them. Ids go together; a message without one is
 *  told by its time and destination, which others may share. */
export function changesOf(messages) {
  const named = messages.filter((each) => each.message_id !== null), changes = new Map();
  const window = (some) => ({ due_after_ms: Math.min(...some.map((each) => each.due_ms)) - 1, due_before_ms: Math.max(...some.map((each) => each.due_ms)) + 1 });
  if (named.length) {
    const same = (field) => (new Set(named.map((each) => each[field])).size === 1 ? { [field]: named[0][field] } : {});
    changes.set("", { query: { ...window(named), ...same("destination"), ...same("layout") }, body: { message_ids: [...new Set(named.map((each) => each.message_id))] } });
  }
  for (const each of messages) {
    if (each.message_id !== null) continue;
    const query = { layout: each.layout, destination: each.destination, parked: each.state === "parked", ...window([each]) };
    changes.set(JSON.stringify(query), { query, body: undefined });
  }
  return [...changes.values()];
}

/** vhost(): which one; fits(): the query of what is shown; changed(): something was. Has element and refresh(signal). */
export class Due {
  constructor(view, { vhost, fits, changed }) {
    Object.assign(this, { view, vhost, fits, changed, limit: SHOWN, picked: new Map(), messages: [], all: 0 });
    this.count = h("p", { class: "hint", role: "status" });
    this.rows = h("tbody");
    this.pickAll = h("input", { type: "checkbox", class: "pick", "aria-label": "Select all shown messages", onchange: () => this.pickShown(this.pickAll.checked) });
    const table = h("table", { class: "plain due" }, h("caption", { class: "unseen" }, "Delayed messages by due time"), h("thead", null, h("tr", null, HEAD.map(([title, kind]) => h("th", { scope: "col", class: kind }, kind === "pick-head" ? this.pickAll : title)))), this.rows);
    this.more = button("Show more", () => { this.limit = SHOWN_MAX; this.changed(); }, { kind: "small" });
    this.empty = h("p", { class: "empty", hidden: true }, "No messages are due in this period.");
    this.buttons = {
      cancel: button("Cancel selected", () => this.cancel(changesOf([...this.picked.values()])), { kind: "danger small" }),
      retime: button("Reschedule selected", () => this.retime(changesOf([...this.picked.values()])), { kind: "small" }),
      cancelAll: button("Cancel all", () => this.cancel([{ query: this.everything(), body: undefined }]), { kind: "danger small" }),
      retimeAll: button("Reschedule all", () => this.retime([{ query: this.everything(), body: undefined }]), { kind: "small" }),
    };
    this.element = h("section", { class: "panel" }, h("header", null, h("h2", null, "Messages"), h("div", { class: "tools" }, Object.values(this.buttons))), this.count, h("div", { class: "plain-scroll" }, table), this.empty, this.more);
    this.say();
  }

  async refresh(signal) {
    this.messages = await get(path`delayed/${this.vhost()}/messages`, { query: { ...this.fits(), limit: this.limit }, signal });
    const seen = new Map();
    for (const each of this.messages) {
      const same = JSON.stringify([each.layout, each.destination, each.message_id, each.routing_key, each.due_ms]);
      seen.set(same, (seen.get(same) ?? 0) + 1);
      each.key = `${same}${seen.get(same)}`;
    }
    for (const key of this.picked.keys()) if (!this.messages.some((each) => each.key === key)) this.picked.delete(key);
    keep(this.rows, this.messages, (each) => each.key, (each) => this.row(each));
    this.say();
  }

  /** all: how many fit; the list may have fewer. */
  setCount(all) {
    this.all = all;
    this.say();
  }

  row(message) {
    const pick = h("input", { type: "checkbox", class: "pick", "aria-label": `Select ${visible(message.message_id ?? message.destination)}`, onchange: () => {
      if (pick.checked) this.picked.set(message.key, message);
      else this.picked.delete(message.key);
      this.say();
    } });
    const left = h("td");
    const element = h("tr", null, h("td", null, pick), h("td", null, time(message.due_ms)), left, h("td", null, visible(message.destination)), h("td", null, message.message_id === null ? "–" : visible(message.message_id)),
      h("td", { class: "wide" }, h("code", null, visible(message.routing_key))), h("td", { class: "wide" }, visible(message.layout)), h("td", { class: "end wide" }, octets(message.message_bytes)));
    const update = (now) => {
      setText(left, now.state === "parked" ? "parked: no route" : now.remaining_ms <= 0 ? "due" : rough(now.remaining_ms > 10_000 ? Math.round(now.remaining_ms / 1000) * 1000 : now.remaining_ms));
      pick.checked = this.picked.has(now.key);
    };
    return { element, update };
  }

  pickShown(isPicked) {
    this.picked = new Map(isPicked ? this.messages.map((each) => [each.key, each]) : []);
    keep(this.rows, this.messages, (each) => each.key, (each) => this.row(each));
    this.say();
  }

  say() {
    const { messages, picked, all } = this, shown = messages.length;
    setText(this.count, shown < all ? `The first ${number(shown)} of ${number(all)}${picked.size ? `, ${number(picked.size)} selected` : ""}.` : `${number(shown)} shown${picked.size ? `, ${number(picked.size)} selected` : ""}.`);
    this.buttons.cancel.disabled = this.buttons.retime.disabled = picked.size === 0;
    this.buttons.cancelAll.disabled = this.buttons.retimeAll.disabled = shown === 0;
    this.empty.hidden = shown > 0;
    this.more.hidden = shown >= all || this.limit >= SHOWN_MAX;
    this.pickAll.checked = shown > 0 && picked.size === shown;
  }

  /** The query for all that fit; the broker wants to hear it if that is really all there is. */
  everything() {
    const fits = this.fits();
    return Object.values(fits).every((each) => each === null || each === undefined) ? { all: true } : fits;
  }

  // -- changes

  /** Do one request after the other; the sum of their counts. */
  async each(changes, does) {
    let count = 0;
    for (const change of changes) count += (await does(path`delayed/${this.vhost()}/messages`, change)).message_count;
    return count;
  }

  async counted(changes) {
    try {
      const count = await this.each(changes, (where, { query, body }) => del(where, { query: { ...query, dry_run: true }, body, signal: this.view.signal }));
      if (count === 0) notify("The messages no longer exist.", "bad");
      return count;
    } catch (error) {
      if (error.name !== "AbortError") notify(error.message, "bad");
      return 0;
    }
  }

  async cancel(changes) {
    const count = await this.counted(changes);
    if (!count) return;
    await confirm(`Cancel ${messagesText(count)}?`, ["They will not be delivered. This cannot be undone."], `Cancel ${messagesText(count)}`, async () => {
      const done = await this.each(changes, (where, { query, body }) => del(where, { query, body }));
      this.done(`${messagesText(done)} cancelled.`);
    }, { signal: this.view.signal });
  }

  async retime(changes) {
    const count = await this.counted(changes);
    if (!count) return;
    const fields = [
      { name: "how", label: "When", kind: "choice", options: [["in", "after a delay from now"], ["at", "at a time"]] },
      { name: "amount", label: "After", kind: "number", value: 60, min: 0, required: true }, { name: "unit", label: "Unit", kind: "choice", options: UNITS },
      { name: "at", label: "At", kind: "text", type: "datetime-local", step: "1", value: local(Date.now() + 3_600_000), hint: "In the browser's local time." },
    ];
    await ask(`Reschedule ${messagesText(count)}`, fields, "Reschedule", async ({ how, amount, unit, at }) => {
      const when = how === "in" ? { in_ms: Math.round(amount * Number(unit)) } : { at_ms: new Date(at).getTime() };
      if (Number.isNaN(when.at_ms)) throw new Error("enter a date and a time");
      let dueMs = 0;
      const done = await this.each(changes, async (where, { query, body }) => {
        const answer = await put(where, { ...body, ...when }, { query });
        dueMs = Math.max(dueMs, answer.due_ms ?? 0);
        return answer;
      });
      this.done(`${messagesText(done)} now due ${time(dueMs)}.`);
    }, { text: ["All selected messages get this due time, rounded up to the unit of their layout."], kind: "primary" });
  }

  done(text) {
    this.picked.clear();
    notify(text);
    this.changed();
  }
}

const messagesText = (count) => `${number(count)} ${count === 1 ? "message" : "messages"}`;

function local(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
