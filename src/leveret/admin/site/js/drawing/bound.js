// What is bound to what, drawn: one exchange with its neighbours, or a virtual host. The same as a table for who reads it.

import { get, path } from "../api.js";
import { fill, h } from "../dom.js";
import { number, value, visible } from "../format.js";
import { link } from "../router.js";
import { button } from "../view.js";
import { Graph } from "./graph.js";

const SHOWN = 40;
const SHOWN_MAX = 1000;
const KINDS = { binding: "bound", alternate: "alternate", dead_letter: "dead letters" };
const MORE = {
  destination: { label: "more", says: "more destinations" },
  source: { label: "more exchanges", says: "more source exchanges" },
  dead_letter_source: { label: "more queues", says: "more queues that dead-letter to it" },
};

const idOf = ({ type, name }) => `${type}:${name}`;

/** exchange: null for the whole virtual host. Has element, and refresh(signal). */
export class Bound {
  constructor(view, { vhost, exchange = null }) {
    Object.assign(this, { view, vhost, exchange, limit: SHOWN });
    this.graph = new Graph(view, { label: exchange === null ? `Bindings in ${visible(vhost)}` : `Bindings around the exchange ${visible(exchange)}`, kinds: Object.keys(KINDS) });
    this.graph.onchosen = () => this.showMore();
    this.left = h("p", { class: "drawing-left", role: "status" });
    this.more = button("Show all", () => this.showMore(), { kind: "small" });
    this.more.hidden = true;
    this.rows = h("tbody");
    this.table = h("details", { class: "drawing-table" }, h("summary", null, "Show as a table"),
      h("div", { class: "plain-scroll" }, h("table", { class: "plain" }, h("caption", { class: "unseen" }, "Sources and destinations"),
        h("thead", null, h("tr", null, ["From", "By", "To"].map((title) => h("th", { scope: "col" }, title)))), this.rows)));
    const legend = h("ul", { class: "drawing-legend" }, Object.entries(KINDS).map(([kind, says]) => h("li", { class: `key ${kind}` }, h("i", { "aria-hidden": "true" }), says)));
    this.empty = h("p", { class: "empty", hidden: true }, exchange === null ? "No bindings here except those of the default exchange." : "This exchange has no bindings.");
    this.element = h("div", { class: "bound" }, h("div", { class: "drawing-head" }, legend, h("div", { class: "drawing-more" }, this.left, this.more)), this.graph.element, this.empty, this.table);
  }

  async refresh(signal) {
    const found = await get(path`topology/${this.vhost}`, { query: { exchange: this.exchange, limit: this.limit }, signal });
    this.draw(found);
  }

  async showMore() {
    this.limit = SHOWN_MAX;
    this.graph.viewport.isFitted = true;
    await this.view.once((signal) => this.refresh(signal));
  }

  draw(found) {
    const said = JSON.stringify(found);
    if (said === this.said) return;
    this.said = said;
    const focus = this.exchange === null ? null : idOf({ type: "exchange", name: this.exchange });
    const nodes = found.nodes.map((node) => this.node(node, focus)), edges = found.edges.map((edge) => this.edge(edge));
    for (const [at, left] of found.left_out.entries()) {
      const id = `more:${at}`, { label, says } = MORE[left.what];
      nodes.push({ id, kind: "more", acts: true, title: `${number(left.count)} ${says}: show them`,
        lines: [{ text: `and ${number(left.count)} ${label}` }, ...(left.bindings ? [{ text: `${number(left.bindings)} bindings`, isSmall: true }] : [])] });
      const ends = left.what === "destination" ? [idOf(left), id] : [id, idOf(left)];
      edges.push({ source: ends[0], destination: ends[1], kind: left.what === "dead_letter_source" ? "dead_letter" : "binding", label: "" });
    }
    this.graph.show({ nodes, edges, focus, description: this.sentence(found) });
    const isEmpty = found.edges.length === 0;
    this.empty.hidden = !isEmpty;
    this.graph.element.hidden = isEmpty && this.exchange === null;
    this.table.hidden = isEmpty;
    this.sayLeft(found);
    fill(this.rows, found.edges.map((edge) => h("tr", null, h("td", null, this.name(edge.source)), h("td", null, this.by(edge)), h("td", null, this.name(edge.destination)))));
  }

  // -- boxes and arrows

  node(node, focus) {
    const id = idOf(node), name = visible(node.name), isQueue = node.type === "queue";
    const small = node.is_missing ? "does not exist" : isQueue ? `${node.kind}, ${number(node.messages)} messages` : `${node.kind}${node.is_internal ? ", internal" : ""}`;
    return {
      id, kind: `${node.type}${node.is_missing ? " missing" : ""}${id === focus ? " focus" : ""}`,
      href: node.is_missing ? null : this.address(node),
      title: `${isQueue ? "Queue" : "Exchange"} ${name}: ${small}${isQueue && !node.is_missing ? `, ${number(node.consumers)} consumers` : ""}`,
      lines: [{ text: name }, { text: small, isSmall: true, kind: node.is_missing ? "bad" : isQueue && !node.consumers && node.messages ? "warn" : "" }],
    };
  }

  edge(edge) {
    const by = this.by(edge);
    return { source: idOf(edge.source), destination: idOf(edge.destination), kind: edge.kind, label: by, title: `${visible(edge.source.name)} → ${visible(edge.destination.name)}: ${by || KINDS[edge.kind]}` };
  }

  /** What leads there: routing keys, arguments, or another reason. */
  by(edge) {
    const keys = [...new Set(edge.routing_keys)].filter((key) => key !== "").map((key) => visible(key));
    if (edge.kind !== "binding") return keys.length ? `${KINDS[edge.kind]} as ${keys[0]}` : KINDS[edge.kind];
    const more = edge.bindings - edge.routing_keys.length;
    const said = keys.length ? keys : edge.arguments.map((each) => visible(value(each)));
    const shown = said.slice(0, 2).join(", "), rest = said.length - Math.min(2, said.length) + more;
    return rest > 0 ? `${shown} +${number(rest)}` : shown;
  }

  address({ type, name }) {
    return type === "queue" ? link`queues/${this.vhost}/${name}` : link`exchanges/${this.vhost}/${name}`;
  }

  name({ type, name }) {
    return h("a", { href: this.address({ type, name }) }, `${type} ${visible(name)}`);
  }

  // -- words

  sentence(found) {
    const count = (type) => found.nodes.filter((node) => node.type === type).length;
    return `${number(count("exchange"))} exchanges, ${number(count("queue"))} queues, ${number(found.edges.length)} arrows. The table below has the same data.`;
  }

  sayLeft(found) {
    const left = found.left_out.reduce((sum, each) => sum + each.count, 0), said = [];
    if (left) said.push(`${number(left)} neighbours are not drawn`);
    if (found.exchanges_left_out) said.push(`${number(found.exchanges_left_out)} exchanges with fewer bindings are not shown`);
    if (found.queues_left_out) said.push(`${number(found.queues_left_out)} queues are not shown`);
    const text = said.length ? `${said.join("; ")}.` : "";
    if (this.left.textContent !== text) this.left.textContent = text;
    this.more.hidden = this.limit >= SHOWN_MAX || !(left || found.exchanges_left_out);
  }
}
