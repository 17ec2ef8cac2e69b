// Arguments of queues and exchanges: those that the broker takes notice of, each with its badge ("" for none). The lists are those of
// broker/queues/queue_arguments.py and broker/exchange_types/exchange_arguments.py.

import { h } from "./dom.js";
import { value } from "./format.js";
import { badge } from "./view.js";

export const OF_QUEUES = {
  "x-queue-type": "",
  "x-dead-letter-exchange": "DLX",
  "x-expires": "Exp",
  "x-message-ttl": "TTL",
  "x-dead-letter-routing-key": "DLK",
  "x-max-length": "Lim",
  "x-max-length-bytes": "Lim B",
  "x-max-priority": "Pri",
  "x-overflow": "Ovfl",
  "x-queue-mode": "Args",
  "x-queue-version": "Args",
  "x-single-active-consumer": "SAC",
  "x-delivery-limit": "DlvLim",
  "x-max-age": "Age",
  "x-stream-max-segment-size-bytes": "Args",
  "x-initial-cluster-size": "Args",
  "x-leveret-schema": "Schema",
  "x-leveret-seal-after-ms": "Args",
  "x-consumer-timeout": "Args",
  "x-dead-letter-strategy": "DLS",
  "x-internal-purpose": "Args",
  "x-leveret-positions": "Args",
  "x-message-deduplication": "Args",
  "x-max-in-memory-bytes": "Args",
  "x-max-in-memory-length": "Args",
  "x-queue-leader-locator": "Args",
  "x-queue-master-locator": "Args",
  "x-quorum-initial-group-size": "Args",
  "x-stream-filter-size-bytes": "Args"
};

export const OF_EXCHANGES = {
  "alternate-exchange": "AE",
  "hash-header": "Args",
  "hash-property": "Args",
  "x-cache-persistence": "Args",
  "x-cache-size": "Args",
  "x-cache-ttl": "Args",
  "x-delayed-type": "",
  "x-downstream-name": "Args",
  "x-downstream-vhost": "Args",
  "x-internal-purpose": "Args",
  "x-max-hops": "Args",
  "x-recent-history-length": "Args",
  "x-super-stream": "Args"
};

/** The badges of what was said when this was declared: one for each argument that has one, and one for all others together, which comes
 *  first where the broker knows not all of them. */
export function argumentBadges(some, known) {
  const rest = [],
    found = [];
  for (const [name, given] of Object.entries(some ?? {})) {
    const word = Object.hasOwn(known, name) ? known[name] : "Args",
      text = `${name}: ${value(given)}`;
    if (word === "Args") rest.push(text);
    else if (word) found.push(badge(word, "plain short", text));
  }
  if (unknown(some, known).length) found.unshift(badge("Args", "warn short", rest.join("\n")));
  else if (rest.length) found.push(badge("Args", "plain short", rest.join("\n")));
  return found;
}

/** The names that the broker does not know. */
export function unknown(some, known) {
  return Object.keys(some ?? {}).filter((name) => !Object.hasOwn(known, name));
}

/** What is wrong with these names, in a sentence for each; "" if nothing is. */
export function complaint(some, known) {
  return unknown(some, known)
    .map((name) => {
      const near = nearest(name, Object.keys(known));
      return `${name} is unknown to this broker and has no effect${near ? `: did you mean ${near}?` : "."}`;
    })
    .join(" ");
}

/** Says what is unknown on the page of a queue or an exchange. */
export class Complaint {
  constructor(known) {
    this.known = known;
    this.element = h("p", { class: "callout warn", role: "status", hidden: true });
  }

  update(some) {
    const text = complaint(some, this.known);
    if (this.element.textContent !== text) this.element.textContent = text;
    this.element.hidden = text === "";
  }
}

/** For forms: the first time, what is unknown is an error; who asks for the same again means it. */
export function asker(known) {
  let asked = "";
  return (some) => {
    const text = complaint(some, known);
    if (text === "" || text === asked) return;
    asked = text;
    throw new Error(`${text} Press Add again to declare it anyway.`);
  };
}

function nearest(name, names) {
  const [near, distance] = names
    .map((each) => [each, changes(name, each)])
    .reduce((one, other) => (other[1] < one[1] ? other : one), ["", Infinity]);
  return distance <= Math.max(1, name.length / 4) ? near : "";
}

/** How many characters must be added, taken or changed to make one text of the other; a swap of neighbours is one change. */
function changes(one, other) {
  let above = null,
    row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let at = 1; at <= one.length; at += 1) {
    const next = [at];
    for (let to = 1; to <= other.length; to += 1) {
      const isSame = one[at - 1] === other[to - 1];
      next[to] = Math.min(row[to] + 1, next[to - 1] + 1, row[to - 1] + (isSame ? 0 : 1));
      if (at > 1 && to > 1 && one[at - 1] === other[to - 2] && one[at - 2] === other[to - 1])
        next[to] = Math.min(next[to], above[to - 2] + 1);
    }
    [above, row] = [row, next];
  }
  return row[other.length];
}
