// Federation drawn: the brokers whose exchanges come here, this one, and those that take ours.

import { h } from "../dom.js";
import { duration, number, rate, visible } from "../format.js";
import { Graph } from "./graph.js";

/** Of each state of a link: its word, its colour, and how much it wants to be seen. */
export const STATES = {
  running: { word: "running", kind: "good", rank: 0 },
  starting: { word: "starting", kind: "accent", rank: 1 },
  paused: { word: "paused", kind: "warn", rank: 2 },
  disconnected: { word: "disconnected", kind: "warn", rank: 3 },
  not_federated: { word: "not federated", kind: "bad", rank: 4 },
  error: { word: "error", kind: "bad", rank: 5 },
};

export const stateOf = (link) => STATES[link.status] ?? { word: link.status, kind: "warn", rank: 3 };

/** Where an upstream is: host and port of its URI, which has no credentials. */
export function placeOf(link) {
  try {
    const { protocol, hostname, port } = new URL(link.uri);
    return hostname ? `${hostname}:${port || (protocol === "amqps:" ? 5671 : 5672)}` : "";
  } catch {
    return "";
  }
}

/** Links by the broker they lead to: [{id, name, place, links}]. */
export function upstreams(links) {
  return grouped(links.filter((link) => link.id), (link) => placeOf(link) || link.upstream, (link) => ({ name: link.upstream, place: placeOf(link) }));
}

/** Upstream queues here by the broker that declared them. */
export function downstreams(rows) {
  return grouped(rows, (row) => row.downstream.split(":")[0], (row) => ({ name: row.downstream.split(":")[0], place: "" }));
}

function grouped(rows, key, about) {
  const found = new Map();
  for (const row of rows) {
    const id = key(row);
    if (!found.has(id)) found.set(id, { id, ...about(row), links: [] });
    found.get(id).links.push(row);
  }
  return [...found.values()];
}

const worst = (links) => links.map(stateOf).reduce((one, other) => (other.rank > one.rank ? other : one));
const sum = (links, figure) => links.reduce((total, each) => total + (figure(each) ?? 0), 0);

function words(links) {
  const counts = new Map();
  for (const link of links) counts.set(stateOf(link).word, (counts.get(stateOf(link).word) ?? 0) + 1);
  return counts.size === 1 && links.length === 1 ? [...counts.keys()][0] : [...counts].map(([word, count]) => `${count} ${word}`).join(", ");
}

/** Has element; show({name, links, downstreams}); chosen(id) is called when a broker is chosen. */
export class FederationMap {
  constructor(view, { chosen, speeds }) {
    this.speeds = speeds;
    this.graph = new Graph(view, { label: "Federation: upstream brokers, this broker, downstream brokers", kinds: ["good", "accent", "warn", "bad"], layerGap: 60 });
    this.graph.onchosen = chosen;
    this.element = this.graph.element;
  }

  show({ name, links, rows }) {
    const above = upstreams(links), below = downstreams(rows), here = "here";
    const nodes = [
      { id: here, kind: "exchange focus broker", title: `This broker, ${visible(name)}`, lines: [{ text: visible(name) }, { text: "this broker", isSmall: true }] },
      ...above.map((broker) => this.broker(broker, "up", "upstream")), ...below.map((broker) => this.broker(broker, "down", "downstream")),
    ];
    const edges = [
      ...above.map((broker) => ({ source: `up:${broker.id}`, destination: here, ...this.arrow(broker.links, this.incoming(broker.links)) })),
      ...below.map((broker) => ({ source: here, destination: `down:${broker.id}`, ...this.arrow(broker.links, this.outgoing(broker.links)) })),
    ];
    this.graph.show({ nodes, edges, focus: here, description: `${above.length} upstream and ${below.length} downstream brokers. The lists below have the same data.` });
  }

  broker({ id, name, place, links }, side, word) {
    const exchanges = links.slice(0, 4).map((link) => ({ text: `${visible(link.exchange)} · ${stateOf(link).word}`, isSmall: true, kind: stateOf(link).kind }));
    if (links.length > 4) exchanges.push({ text: `and ${number(links.length - 4)} more`, isSmall: true });
    return {
      id: `${side}:${id}`, kind: `exchange broker ${worst(links).kind}`, acts: true,
      title: `${word} ${visible(name)}${place ? `, ${place}` : ""}: ${words(links)}. Show its links`,
      lines: [{ text: visible(name) }, { text: place || word, isSmall: true }, ...exchanges],
    };
  }

  arrow(links, figures) {
    const { kind } = worst(links), isUp = links.some((link) => link.status === "running");
    const label = isUp ? `${words(links)} · ${figures}` : words(links);
    return { kind, label, title: label };
  }

  incoming(links) {
    return `${rate(this.speeds.sum(links, "messages"))}/s, lag ${number(sum(links, (link) => link.lag))}`;
  }

  outgoing(rows) {
    return `${rate(this.speeds.sum(rows, "delivered"))}/s, waiting ${number(sum(rows, (row) => row.messages))}`;
  }
}

/** What a link says of its state: the word, since when, and why. */
export function stateText(link, nowMs = Date.now()) {
  return link.since_ms ? `for ${duration(Math.max(0, nowMs - link.since_ms))}` : "";
}

/** The word in its colour. */
export function stateBadge(link) {
  const { word, kind } = stateOf(link);
  return h("span", { class: `badge ${kind}`, dataset: { state: link.status } }, word);
}
