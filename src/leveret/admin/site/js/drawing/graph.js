// Boxes and arrows in a window, drawn again when they change and left alone when they do not. The boxes are one stop of the
// Tab key; arrow keys go from one to the next as they stand.

import { fill, h, svg, uniqueId } from "../dom.js";
import { curve, layered } from "./layout.js";
import { Viewport } from "./viewport.js";

const TEXT_MAX = 30;
const LABEL_MAX = 34;
const LINE = 16;
const PADDING = 12;

/** A text that fits, its end kept where names differ most. */
export function short(text, most = TEXT_MAX) {
  const characters = [...String(text)];
  if (characters.length <= most) return characters.join("");
  const tail = Math.floor(most / 3);
  return `${characters.slice(0, most - tail - 1).join("")}…${characters.slice(-tail).join("")}`;
}

const pen = document.createElement("canvas").getContext("2d");

/** How wide a text is in a size and weight of the page's type, or of its typewriter's. */
function widthOf(text, font, name) {
  pen.font = `${font} ${getComputedStyle(document.documentElement).getPropertyValue(name)}`;
  return pen.measureText(text).width;
}

const lineWidth = ({ text, isSmall }) => widthOf(text, isSmall ? "11.5px" : "550 13px", "--font");

/** show({nodes, edges, focus}): nodes: [{id, kind: class, lines: [{text, isSmall, kind}], title, href, or acts: choosing it is told to onchosen(id)}]; edges: [{source,
 *  destination, kind, label, title}]; focus: id of the node that is shown if not all can be. kinds: marks of arrows. */
export class Graph {
  constructor(view, { label, description = "", kinds, layerGap }) {
    this.kinds = kinds;
    this.layerGap = layerGap;
    this.prefix = uniqueId("graph");
    this.viewport = new Viewport(view, { label, description });
    this.hint = h("p", { class: "drawing-hint", id: `${this.prefix}-hint` },
      "Drag to pan; zoom with Ctrl and mouse wheel, or + and −. Keyboard: arrow keys select a box, Shift and arrow keys pan.");
    this.viewport.svg.setAttribute("aria-describedby", this.hint.id);
    this.element = h("div", { class: "graph" }, this.viewport.element, this.hint);
    this.viewport.svg.addEventListener("keydown", (event) => this.key(event));
    this.active = null;
    this.said = "";
  }

  show({ nodes, edges, focus = null, description }) {
    if (description) this.viewport.describe(description);
    const said = JSON.stringify([nodes, edges, focus]);
    if (said === this.said) return;
    this.said = said;
    const sized = nodes.map((node) => {
      const lines = node.lines.map((line) => ({ ...line, text: short(line.text) }));
      return { ...node, lines, width: Math.max(70, Math.max(...lines.map(lineWidth)) + 2 * PADDING + 6), height: lines.length * LINE + 14 };
    });
    const labels = edges.map((edge) => short(edge.label ?? "", LABEL_MAX));
    const plan = layered(sized, edges.map((edge, at) => ({ ...edge, label: labels[at] ? widthOf(labels[at], "11.5px", "--mono") + 10 : 0 })), { layerGap: this.layerGap });
    this.nodes = sized;
    this.boxes = plan.nodes;
    if (!plan.nodes.has(this.active)) this.active = focus ?? nodes[0]?.id ?? null;
    const hadFocus = this.viewport.layer.contains(document.activeElement);
    fill(this.viewport.layer, this.marks(),
      svg("g", { class: "edges" }, edges.map((edge, at) => this.arrow(edge, plan.edges[at], labels[at]))),
      svg("g", { class: "nodes" }, sized.map((node) => this.box(node, plan.nodes.get(node.id)))));
    const top = plan.edges.some((edge) => edge.isLoop) ? 30 : 0;
    this.viewport.setSize({ width: plan.width, height: plan.height + top }, plan.nodes.get(focus) ?? null);
    if (hadFocus) this.focusActive();
  }

  marks() {
    return svg("defs", null, this.kinds.map((kind) => svg("marker", {
      id: `${this.prefix}-${kind}`, viewBox: "0 0 8 8", refX: "7.5", refY: "4", markerWidth: "9", markerHeight: "9", markerUnits: "userSpaceOnUse", orient: "auto",
    }, svg("path", { d: "M0 0L8 4L0 8z", class: `tip ${kind}` }))));
  }

  arrow(edge, plan, label) {
    return svg("g", { class: `edge ${edge.kind}` }, svg("title", null, edge.title ?? edge.label ?? ""),
      svg("path", { class: "edge-wide", d: curve(plan) }),
      svg("path", { class: "edge-line", d: curve(plan), "marker-end": `url(#${this.prefix}-${edge.kind})` }),
      label && svg("text", { class: "edge-label", x: plan.labelAt.x, y: plan.labelAt.y, "text-anchor": plan.labelAt.anchor }, label));
  }

  box(node, { x, y, width, height }) {
    const top = y + height / 2 - (node.lines.length * LINE) / 2 + 12;
    const shape = [
      svg("title", null, node.title),
      svg("rect", { class: "node-box", x, y, width, height, rx: node.kind.includes("queue") ? 3 : 9 }),
      svg("rect", { class: "node-mark", x, y: y + 6, width: 4, height: Math.max(4, height - 12), rx: 2 }),
      node.lines.map((line, at) => svg("text", {
        class: `node-text ${line.isSmall ? "small" : ""} ${line.kind ?? ""}`, x: x + PADDING + 3, y: top + at * LINE,
      }, line.text)),
    ];
    const props = { class: `node ${node.kind}`, "aria-label": node.title, tabindex: node.id === this.active ? "0" : "-1", dataset: { id: node.id },
      onfocus: () => this.activate(node.id) };
    if (node.href) return svg("a", { ...props, href: node.href, onclick: (event) => this.clicked(event), ondragstart: (event) => event.preventDefault() }, shape);
    if (!node.acts) return svg("g", { ...props, role: "img" }, shape);
    return svg("g", { ...props, role: "button", onclick: (event) => { if (this.clicked(event)) this.does(node.id); } }, shape);
  }

  /** A box without a link was chosen. */
  does(id) {
    this.onchosen?.(id);
  }

  clicked(event) {
    const wasMoved = this.viewport.moved >= 5 && event.detail > 0;
    if (wasMoved) event.preventDefault();
    return !wasMoved;
  }

  // -- keys

  activate(id) {
    if (this.active !== id) this.elementOf(this.active)?.setAttribute("tabindex", "-1");
    this.active = id;
    this.elementOf(id)?.setAttribute("tabindex", "0");
    this.viewport.reveal(this.boxes.get(id));
  }

  elementOf(id) {
    return [...this.viewport.layer.querySelectorAll(".node")].find((each) => each.dataset.id === id);
  }

  focusActive() {
    this.elementOf(this.active)?.focus({ preventScroll: true });
  }

  key(event) {
    if (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    const node = event.target.closest?.(".node");
    if ((event.key === "Enter" || event.key === " ") && node?.getAttribute("role") === "button") {
      event.preventDefault();
      this.does(this.active);
      return;
    }
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (!dx && !dy) return;
    event.preventDefault();
    const next = this.neighbour(dx, dy);
    if (next === null) return;
    this.activate(next);
    this.focusActive();
  }

  // The nearest box in that direction; what stands aside counts more than what is far.
  neighbour(dx, dy) {
    const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
    const [x, y] = middle(this.boxes.get(this.active));
    let best = null, least = Infinity;
    for (const [id, box] of this.boxes) {
      const [left, top] = middle(box), ahead = (left - x) * dx + (top - y) * dy, aside = Math.abs((left - x) * dy) + Math.abs((top - y) * dx);
      const cost = ahead + 2.5 * aside;
      if (id !== this.active && ahead > 1 && cost < least) [best, least] = [id, cost];
    }
    return best;
  }
}
