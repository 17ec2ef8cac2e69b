// A window on a drawing that is larger than the page: moved and enlarged by pointer, fingers, keys and buttons.

import { h, svg } from "../dom.js";

const STEP = 1.3;
const ZOOM_MAX = 3;
const READABLE = 0.72; // smaller than this nobody reads it: then a part is shown
const MOVE = 60;
const SLACK = 24;

/** label, hint: for who does not see it. Has element (the frame), layer (an SVG group for the drawing). */
export class Viewport {
  constructor(view, { label, description }) {
    this.size = { width: 1, height: 1 };
    this.at = { x: 0, y: 0, zoom: 1 };
    this.isFitted = true; // until the reader moves it
    this.pointers = new Map();
    this.layer = svg("g");
    this.title = svg("title", null, label);
    this.desc = svg("desc", null, description);
    this.svg = svg("svg", {
      class: "drawing-svg", role: "group", "aria-label": label, "aria-roledescription": "drawing", onkeydown: (event) => this.key(event),
      onpointerdown: (event) => this.down(event), onpointermove: (event) => this.move(event), onpointerup: (event) => this.up(event),
      onpointercancel: (event) => this.up(event),
    }, this.title, this.desc, this.layer);
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    const button = (text, says, does) => h("button", { type: "button", class: "button small", title: says, "aria-label": says, onclick: does }, text);
    this.element = h("div", { class: "drawing" }, this.svg, h("div", { class: "drawing-buttons" },
      button("+", "Zoom in (+)", () => this.zoom(STEP)), button("−", "Zoom out (-)", () => this.zoom(1 / STEP)),
      button("⤢", "Show everything (0)", () => this.fit(true))));
    const sizes = new ResizeObserver(() => this.resized());
    sizes.observe(this.svg);
    view.signal.addEventListener("abort", () => sizes.disconnect());
  }

  /** The drawing has this size from now on; focus: the box that is shown if not all of it can be. */
  setSize(size, focus = null) {
    this.size = size;
    this.focus = focus;
    this.svg.style.setProperty("--need", `${Math.ceil(size.height * 1.1) + 3 * SLACK}px`);
    this.resized();
  }

  describe(text) {
    if (this.desc.textContent !== text) this.desc.textContent = text;
  }

  resized() {
    this.width = this.svg.clientWidth;
    this.height = this.svg.clientHeight;
    if (this.width && this.isFitted) this.fit();
    else this.apply();
  }

  /** all: the whole of it, however small it gets. */
  fit(all = false) {
    const { width, height } = this.size;
    const whole = Math.min(1.1, (this.width - 2 * SLACK) / width, (this.height - 2 * SLACK) / height);
    const wide = Math.min(1, (this.width - 2 * SLACK) / width);
    const zoom = all || whole >= READABLE ? whole : Math.max(READABLE, wide);
    const box = this.focus ?? { x: 0, y: 0, width: 0, height: 0 };
    const centre = (room, size, middle) => (size * zoom <= room - SLACK ? (room - size * zoom) / 2
      : Math.min(SLACK, Math.max(room - size * zoom - SLACK, room / 2 - middle * zoom)));
    this.at = { zoom, x: centre(this.width, width, box.x + box.width / 2), y: centre(this.height, height, box.y + box.height / 2) };
    this.isFitted = !all;
    this.apply();
  }

  apply() {
    const { x, y, zoom } = this.at;
    this.layer.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${zoom.toFixed(4)})`);
  }

  shift(x, y) {
    this.isFitted = false;
    this.at.x += x;
    this.at.y += y;
    this.apply();
  }

  /** Enlarge around a point of the window; its middle if none is given. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const least = Math.min(0.3, this.width / (this.size.width + 100), this.height / (this.size.height + 100));
    const zoom = Math.min(ZOOM_MAX, Math.max(least, this.at.zoom * factor)), ratio = zoom / this.at.zoom;
    this.isFitted = false;
    this.at = { zoom, x: x - (x - this.at.x) * ratio, y: y - (y - this.at.y) * ratio };
    this.apply();
  }

  /** Move so that a box of the drawing is in sight. */
  reveal({ x, y, width, height }) {
    const { zoom } = this.at, left = x * zoom + this.at.x, top = y * zoom + this.at.y;
    const right = left + width * zoom, bottom = top + height * zoom;
    const dx = left < SLACK ? SLACK - left : right > this.width - SLACK ? this.width - SLACK - right : 0;
    const dy = top < SLACK ? SLACK - top : bottom > this.height - SLACK ? this.height - SLACK - bottom : 0;
    if (dx || dy) this.shift(dx, dy);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const does = {
      "+": () => this.zoom(STEP), "=": () => this.zoom(STEP), "-": () => this.zoom(1 / STEP), 0: () => this.fit(true),
      ...(event.shiftKey ? {
        ArrowLeft: () => this.shift(MOVE, 0), ArrowRight: () => this.shift(-MOVE, 0),
        ArrowUp: () => this.shift(0, MOVE), ArrowDown: () => this.shift(0, -MOVE),
      } : {}),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page is scrolled with it
    event.preventDefault();
    const box = this.svg.getBoundingClientRect();
    this.zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }

  // -- pointers: one moves, two enlarge. A press that moves nothing is a click, and the link's

  down(event) {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.moved = 0;
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY }, others = [...this.pointers.entries()].filter(([id]) => id !== event.pointerId);
    this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    this.pointers.set(event.pointerId, now);
    if (this.moved < 5) return;
    if (!this.svg.hasPointerCapture(event.pointerId)) this.svg.setPointerCapture(event.pointerId);
    if (others.length === 0) {
      this.shift(now.x - before.x, now.y - before.y);
      return;
    }
    const other = others[0][1], box = this.svg.getBoundingClientRect();
    const far = (point) => Math.hypot(point.x - other.x, point.y - other.y);
    this.zoom(far(now) / Math.max(1, far(before)), (now.x + other.x) / 2 - box.left, (now.y + other.y) / 2 - box.top);
  }

  up(event) {
    this.pointers.delete(event.pointerId);
  }
}
