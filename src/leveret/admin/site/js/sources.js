// Where the rows of a table come from: pages of a list that the broker sorts and filters, or an array that is here already.

import { get, ApiError } from "./api.js";

const PAGE_ROWS = 100;
const PAGES_KEPT = 12;

/** A list of the API. where: its path; columns: what is asked for; query: further parameters, or a function that gives them. */
export class Remote {
  constructor({ where, columns, query = {} }) {
    this.where = where;
    this.columns = columns;
    this.query = query;
    this.pages = new Map();
    this.total = null; // of those that fit the filter; null: not known yet
    this.all = null;
  }

  /** Forget what is here: the question is another one now. */
  reset() {
    this.pages.clear();
    this.total = null;
  }

  row(index) {
    return this.pages.get(Math.floor(index / PAGE_ROWS))?.[index % PAGE_ROWS];
  }

  has(from, to) {
    for (let page = Math.floor(from / PAGE_ROWS); page * PAGE_ROWS < to; page += 1) if (!this.pages.has(page)) return false;
    return true;
  }

  /** Ask for the pages of these rows, one after the other. */
  async load(from, to, { filter, isRegex, sort, isDescending }, signal) {
    const first = Math.floor(from / PAGE_ROWS), last = Math.max(first, Math.floor((to - 1) / PAGE_ROWS));
    for (let page = first; page <= last; page += 1) {
      if (this.total !== null && page > 0 && page * PAGE_ROWS >= this.total) break;
      await this.loadPage(page, { filter, isRegex, sort, isDescending }, signal);
    }
    for (const page of this.pages.keys()) {
      if (this.pages.size <= PAGES_KEPT) break;
      if (page < first || page > last) this.pages.delete(page);
    }
  }

  async loadPage(page, { filter, isRegex, sort, isDescending }, signal) {
    const more = typeof this.query === "function" ? this.query() : this.query;
    const query = {
      page: page + 1, page_size: PAGE_ROWS, columns: this.columns, sort, sort_reverse: isDescending || null,
      name: filter || null, use_regex: (filter && isRegex) || null, ...more,
    };
    try {
      const answer = await get(this.where, { query, signal });
      this.pages.set(page, answer.items);
      this.total = answer.filtered_count;
      this.all = answer.total_count;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 400 || page === 0) throw error;
      this.reset(); // the list has become shorter than where the reader was
      await this.loadPage(0, { filter, isRegex, sort, isDescending }, signal);
    }
  }
}

/** Rows that are all here. load(signal) gives them; texts(row): what the filter looks at. */
export class Local {
  constructor({ load, texts = (row) => [row.name] }) {
    this.ask = load;
    this.texts = texts;
    this.rows = null;
    this.shown = [];
  }

  get total() { return this.rows === null ? null : this.shown.length; }
  get all() { return this.rows?.length ?? null; }

  reset() { /* all rows stay: filter and order are made here */ }
  row(index) { return this.shown[index]; }
  has() { return this.rows !== null; }

  async load(from, to, order, signal) {
    this.rows = await this.ask(signal);
    this.arrange(order);
  }

  /** Filter and sort anew. */
  arrange({ filter, isRegex, sort, isDescending }) {
    const fits = matcher(filter, isRegex);
    this.shown = (this.rows ?? []).filter((row) => this.texts(row).some((text) => fits(String(text))));
    if (sort) this.shown.sort((one, other) => compare(at(one, sort), at(other, sort)) * (isDescending ? -1 : 1));
  }
}

function matcher(filter, isRegex) {
  if (!filter) return () => true;
  if (isRegex) {
    try {
      const pattern = new RegExp(filter, "i");
      return (text) => pattern.test(text);
    } catch (error) {
      throw new ApiError(400, "bad_request", error.message);
    }
  }
  const wanted = filter.toLowerCase();
  return (text) => text.toLowerCase().includes(wanted);
}

/** What a dotted path leads to. */
export function at(item, dotted) {
  return dotted.split(".").reduce((each, part) => each?.[part], item);
}

function compare(one, other) {
  if (typeof one === "number" || typeof other === "number") return (one ?? 0) - (other ?? 0);
  return String(one ?? "").localeCompare(String(other ?? ""));
}
