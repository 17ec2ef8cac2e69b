// A table of any length: only the rows in sight are in the document. One order, one filter, arrow keys, and a link for each row.

import { fill, h, uniqueId } from "./dom.js";
import { number } from "./format.js";
import { Local } from "./sources.js";
import { go } from "./router.js";

const OVERSCAN = 6;
const HEIGHT_MAX = 15_000_000; // what browsers can lay out
const FILTER_PAUSE_MS = 200;
const UNSORTED = { sort: null, isDescending: false };

/** columns: [{title, cell(row) -> text or node, sort: column of the API, end: right-aligned figures, width: CSS, main: the row's name,
 *  phone: shown there, too; acts: has
 *  buttons}]; source: Remote or Local; href(row): where Enter and a click lead; key(row): who it is; label: of the
 *  whole; empty: said without rows; tools: nodes beside the filter; filter: false for none; sort, isDescending: at first;
 *  isFull: takes the rest of the window; onloaded(table). */
export class Table {
  constructor(view, options) {
    this.view = view;
    this.options = { empty: "Nothing here yet.", tools: [], filter: true, isFull: false, ...options };
    this.source = options.source;
    this.order = {
      filter: "",
      isRegex: false,
      ...UNSORTED,
      sort: options.sort ?? null,
      isDescending: Boolean(options.isDescending),
    };
    if (this.options.isFull) this.restore();
    this.active = -1;
    this.drawn = new Map(); // index -> {element, row, cells}
    this.build();
  }

  // -- what is in the address: a link to a filtered list is a filtered list

  restore() {
    const { query } = this.view;
    this.order.filter = query.get("name") ?? this.order.filter;
    this.order.isRegex = query.get("regex") === "1";
    this.order.sort = query.get("sort") ?? this.order.sort;
    if (query.has("sort")) this.order.isDescending = query.get("desc") === "1";
  }

  remember() {
    if (!this.options.isFull) return;
    const { filter, isRegex, sort, isDescending } = this.order;
    this.view.setQuery({ name: filter, regex: isRegex && "1", sort, desc: isDescending && "1" });
  }

  // -- the element

  build() {
    const { label, columns, isFull } = this.options;
    this.id = uniqueId("table");
    this.count = h("span", { class: "count", aria: { live: "polite" } });
    this.body = h("tbody", { role: "rowgroup" });
    this.heads = columns.map((column) => this.head(column));
    this.table = h(
      "table",
      {
        class: "table",
        role: "grid",
        tabindex: "0",
        aria: { label, rowcount: "-1", colcount: columns.length },
        onkeydown: (event) => this.key(event),
      },
      h(
        "colgroup",
        null,
        columns.map((column) => h("col", { style: column.width ? { width: column.width } : {} })),
      ),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row", "aria-rowindex": "1" }, this.heads)),
      this.body,
    );
    this.scroller = h("div", { class: "table-scroll", onscroll: () => this.scrolled() }, this.table);
    this.message = h("p", { class: "table-message" }, "…");
    this.element = h(
      "section",
      { class: `table-box${isFull ? " full" : ""}${columns.some((each) => each.acts) ? " acting" : ""}` },
      this.bar(),
      this.scroller,
      this.message,
    );
    this.above = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
    this.below = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
    this.body.append(this.above, this.below);
    const sizes = new ResizeObserver(() => {
      this.measure();
      this.render();
    });
    sizes.observe(this.scroller);
    this.view.signal.addEventListener("abort", () => sizes.disconnect());
    this.sorted();
  }

  bar() {
    const { filter, label, tools } = this.options;
    if (!filter)
      return tools.length ? h("div", { class: "table-bar" }, this.count, h("div", { class: "tools" }, tools)) : null;
    this.filter = h("input", {
      type: "search",
      class: "filter",
      placeholder: "Filter by name",
      "aria-label": `Filter ${label}`,
      autocomplete: "off",
      spellcheck: "false",
      value: this.order.filter,
      oninput: () => this.typed(),
      onkeydown: (event) => {
        if (event.key === "ArrowDown") {
          event.preventDefault();
          this.table.focus();
        }
        if (event.key === "Escape") {
          this.filter.value = "";
          this.typed();
          this.table.focus();
        }
      },
    });
    this.regex = h("input", {
      type: "checkbox",
      id: `${this.id}-regex`,
      "aria-label": "Regular expression",
      onchange: () => this.typed(),
    });
    this.regex.checked = this.order.isRegex;
    return h(
      "div",
      { class: "table-bar" },
      this.filter,
      h(
        "label",
        { class: "toggle", for: `${this.id}-regex`, title: "The filter is a regular expression" },
        this.regex,
        h("span", null, ".*"),
      ),
      this.count,
      h("div", { class: "tools" }, tools),
    );
  }

  head(column) {
    const props = { role: "columnheader", scope: "col", class: this.classes(column) };
    if (!column.sort) return h("th", props, column.title);
    return h(
      "th",
      props,
      h("button", { class: "sort", tabindex: "-1", onclick: () => this.sortBy(column) }, column.title),
    );
  }

  classes({ end, main, phone }) {
    return [end && "end", main && "main", phone && "phone"].filter(Boolean).join(" ");
  }

  // -- order and filter

  typed() {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => {
      this.order.filter = this.filter.value;
      this.order.isRegex = this.regex.checked;
      this.changed();
    }, FILTER_PAUSE_MS);
  }

  sortBy(column) {
    const isSame = this.order.sort === column.sort;
    this.order.isDescending = isSame ? !this.order.isDescending : Boolean(column.end); // figures: the greatest first
    this.order.sort = column.sort;
    this.sorted();
    this.changed();
  }

  sorted() {
    for (const [at, column] of this.options.columns.entries()) {
      const isSorted = column.sort && column.sort === this.order.sort;
      this.heads[at].setAttribute(
        "aria-sort",
        isSorted ? (this.order.isDescending ? "descending" : "ascending") : "none",
      );
    }
  }

  changed() {
    this.active = -1;
    this.scroller.scrollTop = 0;
    this.remember();
    this.source.reset();
    if (this.source instanceof Local && this.source.rows !== null) {
      this.source.arrange(this.order);
      this.render();
    } else this.poll?.now();
  }

  // -- rows

  /** Ask for what is in sight, and show it: what a page gives to view.poll. */
  async refresh(signal) {
    const { from, to } = this.sight();
    const asked = JSON.stringify(this.order);
    await this.source.load(from, to, this.order, signal);
    if (asked !== JSON.stringify(this.order)) {
      this.source.reset();
      this.poll?.now();
      return;
    }
    this.measure();
    this.render();
    this.options.onloaded?.(this);
  }

  /** Refresh at the reader's pace, until the page is left. */
  start() {
    this.poll = this.view.poll((signal) => this.refresh(signal));
    return this;
  }

  measure() {
    this.rowHeight = parseFloat(getComputedStyle(this.scroller).getPropertyValue("--row-h")) || 36;
    this.height = this.scroller.clientHeight;
  }

  sight() {
    if (!this.rowHeight) this.measure();
    const from = Math.max(0, Math.floor(this.scroller.scrollTop / this.rowHeight) - OVERSCAN);
    const seen = Math.ceil((this.height || 600) / this.rowHeight) + 2 * OVERSCAN;
    return { from, to: from + seen };
  }

  scrolled() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.render();
      const { from, to } = this.sight();
      if (this.source.total !== null && !this.source.has(from, Math.min(to, this.source.total))) this.poll?.now();
    });
  }

  render() {
    const total = this.source.total,
      rows = Math.min(total ?? 0, Math.floor(HEIGHT_MAX / this.rowHeight));
    const { from, to } = this.sight(),
      last = Math.min(to, rows);
    for (const [index, { element }] of this.drawn) {
      if (index >= from && index < last) continue;
      element.remove();
      this.drawn.delete(index);
    }
    let before = this.above;
    for (let index = from; index < last; index += 1) before = this.draw(index, before);
    this.above.style.height = `${from * this.rowHeight}px`;
    this.below.style.height = `${Math.max(0, rows - last) * this.rowHeight}px`;
    this.above.hidden = from === 0;
    this.below.hidden = rows <= last;
    this.table.setAttribute("aria-rowcount", total === null ? "-1" : String(total + 1));
    this.say(total, rows);
    this.mark();
  }

  say(total, rows) {
    const { all } = this.source;
    if (total === null) fill(this.count, "…");
    else fill(this.count, total === all || all === null ? number(total) : `${number(total)} of ${number(all)}`);
    const text =
      total === 0
        ? this.order.filter
          ? "Nothing matches this filter."
          : this.options.empty
        : rows < (total ?? 0)
          ? `Only the first ${number(rows)} are shown: use the filter to find others.`
          : total === null
            ? "Loading …"
            : "";
    this.message.textContent = text;
    this.message.hidden = text === "";
  }

  draw(index, before) {
    const row = this.source.row(index),
      { columns, href } = this.options;
    let drawn = this.drawn.get(index);
    if (!drawn) {
      const cells = columns.map((column) =>
        h("td", { role: "gridcell", class: this.classes(column), dataset: { label: column.title } }),
      );
      const element = h(
        "tr",
        {
          role: "row",
          id: `${this.id}-${index}`,
          "aria-rowindex": index + 2,
          class: index % 2 ? "odd" : "",
          onclick: (event) => this.clicked(event, index),
        },
        cells,
      );
      drawn = { element, cells, said: [] };
      this.drawn.set(index, drawn);
    }
    for (const [at, column] of columns.entries()) {
      let content = row === undefined ? "" : column.cell(row);
      if (column.main && href && row !== undefined && !(content instanceof Node)) {
        content = h("a", { href: href(row), tabindex: "-1", title: content }, content);
      }
      const said = content instanceof Node ? content.outerHTML : String(content ?? "–");
      if (drawn.said[at] === said && !column.acts) continue; // acts: its buttons hold on to this row
      drawn.said[at] = said;
      fill(drawn.cells[at], content instanceof Node ? content : said);
    }
    drawn.element.classList.toggle("waiting", row === undefined);
    drawn.element.classList.toggle("leads", Boolean(href));
    if (before.nextSibling !== drawn.element) before.after(drawn.element);
    return drawn.element;
  }

  clicked(event, index) {
    this.active = index;
    this.mark();
    const row = this.source.row(index);
    if (
      row === undefined ||
      !this.options.href ||
      event.target.closest("a, button, input, label") ||
      String(getSelection())
    )
      return;
    go(this.options.href(row));
  }

  // -- keys

  key(event) {
    if (event.target !== this.table || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.height / this.rowHeight) - 2),
      last = (this.source.total ?? 0) - 1;
    const to = {
      ArrowDown: this.active + 1,
      ArrowUp: this.active - 1,
      PageDown: this.active + page,
      PageUp: this.active - page,
      Home: 0,
      End: last,
    }[event.key];
    if (to !== undefined && last >= 0) {
      event.preventDefault();
      this.active = Math.min(Math.max(to, 0), last);
      this.reveal();
    } else if (event.key === "Enter" && this.options.href) {
      const row = this.source.row(this.active);
      if (row !== undefined) go(this.options.href(row));
    }
  }

  reveal() {
    const top = this.active * this.rowHeight,
      head = this.table.tHead.offsetHeight;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + this.rowHeight + head > this.scroller.scrollTop + this.height)
      this.scroller.scrollTop = top + this.rowHeight + head - this.height;
    this.render();
  }

  mark() {
    for (const [index, { element }] of this.drawn) {
      element.classList.toggle("active", index === this.active);
      if (index === this.active) element.setAttribute("aria-selected", "true");
      else element.removeAttribute("aria-selected");
    }
    if (this.drawn.has(this.active)) this.table.setAttribute("aria-activedescendant", `${this.id}-${this.active}`);
    else this.table.removeAttribute("aria-activedescendant");
  }
}
