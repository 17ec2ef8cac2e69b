// What a page gets: where it draws, what its address says, and how it asks for what it shows until the reader leaves.

import { ApiError } from "./api.js";
import { fill, h, setText } from "./dom.js";
import { Poll } from "./poll.js";

/** root: the element to fill; params: of the path, decoded; noun: what the page is about, "This queue"; query: URLSearchParams; user: who reads; vhost: the chosen virtual host,
 *  null for all; signal: aborts when the page is left. */
export class View {
  constructor({ root, params, noun, query, user, vhost, told, titled, replaced }) {
    Object.assign(this, { root, params, noun, query, user, vhost, told, titled, replaced });
    this.leaving = new AbortController();
    this.signal = this.leaving.signal;
    this.hasAnswer = false;
    this.polls = [];
  }

  /** ask(signal) now and at the reader's pace; failures are told in the bar. everyS: another pace. Gives {now()}. */
  poll(ask, { everyS = null } = {}) {
    const poll = new Poll(ask, { signal: this.signal, told: (error) => this.answered(error), everyS });
    this.polls.push(poll);
    return poll;
  }

  /** Delete what the page is about by does(). The page asks for it no longer, so that nobody is told that it is missing; if
   *  does() fails, it asks again. */
  async deleteWith(does) {
    for (const poll of this.polls) poll.hold();
    try {
      await does();
    } catch (error) {
      for (const poll of this.polls) poll.resume();
      throw error;
    }
  }

  /** What came of a question about what the page shows: null, or an error, which is told in the bar. */
  answered(error) {
    this.setMissing(error?.status === 404);
    this.hasAnswer ||= error === null;
    this.told(error);
  }

  /** What is not there can't be changed: its last state is shown without its buttons, and nothing if it never had one. */
  setMissing(isMissing) {
    this.root.inert = isMissing;
    this.root.classList.toggle("missing", isMissing);
    this.root.classList.toggle("never", isMissing && !this.hasAnswer);
  }

  /** ask(signal) once, out of turn, as after a change: failures are told in the bar, and a page that was left needs no answer. */
  async once(ask) {
    try {
      await ask(this.signal);
    } catch (error) {
      if (this.signal.aborted) return;
      if (!(error instanceof ApiError)) console.error(error);
      this.told(error);
    }
  }

  /** What the window and the head of the page say. above: [[text, address], …] of the pages above it. */
  title(text, above = []) {
    this.titled(text, above);
  }

  /** Change what stands behind the ? of the address, without another page. */
  setQuery(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (value) this.query.set(name, value);
      else this.query.delete(name);
    }
    this.replaced(this.query);
  }

  /** Replace what is shown. */
  show(...children) {
    fill(this.root, ...children);
  }

  leave() {
    this.leaving.abort();
  }
}

/** A part of a page with a head. actions: buttons beside it. */
export function panel(title, body, { actions = [], kind = "" } = {}) {
  return h(
    "section",
    { class: `panel ${kind}` },
    (title || actions.length > 0) && h("header", null, h("h2", null, title), h("div", { class: "tools" }, actions)),
    body,
  );
}

/** Names and values: [[name, value or node], …]; null and false are left out. */
export function facts(pairs) {
  return new Facts().update(pairs).element;
}

/** The same for values that change: what did not change is not touched. */
export class Facts {
  constructor() {
    this.element = h("dl", { class: "facts" });
    this.shown = new Map();
  }

  update(pairs) {
    const wanted = pairs.filter(Boolean);
    if (wanted.map(([name]) => name).join("\n") !== [...this.shown.keys()].join("\n")) {
      this.shown = new Map(wanted.map(([name]) => [name, h("dd")]));
      fill(
        this.element,
        [...this.shown].map(([name, place]) => h("div", null, h("dt", null, name), place)),
      );
    }
    for (const [name, value] of wanted) {
      const place = this.shown.get(name),
        said = value ?? "–";
      if (!(said instanceof Node)) setText(place, said);
      else if (place.firstChild?.outerHTML !== said.outerHTML) fill(place, said);
    }
    return this;
  }
}

/** A word with a colour: good, warn, bad, plain. */
export function badge(text, kind = "plain", title = null) {
  return h("span", { class: `badge ${kind}`, title }, text);
}

/** A button. kind: primary, danger, or nothing. */
export function button(label, does, { kind = "", title = null, disabled = false, small = false } = {}) {
  return h(
    "button",
    { type: "button", class: `button ${kind}${small ? " small" : ""}`, title, disabled, onclick: does },
    label,
  );
}

/** Tables of arguments and the like, as one line that can be read. */
export function table(some) {
  const entries = Object.entries(some ?? {});
  if (!entries.length) return "none";
  return h(
    "span",
    { class: "pairs" },
    entries.map(([name, value]) =>
      h("span", null, `${name}: `, h("b", null, typeof value === "string" ? value : JSON.stringify(value))),
    ),
  );
}
