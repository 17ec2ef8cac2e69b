// Limits of virtual hosts and users: a table, set, clear.

import { del, get, path, put } from "./api.js";
import { confirm, notify } from "./dialog.js";
import { ask } from "./form.js";
import { number, visible } from "./format.js";
import { Local } from "./sources.js";
import { Table } from "./table.js";
import { button, panel } from "./view.js";

export const LIMITS = {
  vhost: {
    list: "vhost-limits",
    title: "Limits of virtual hosts",
    noun: "Virtual host",
    names: [
      ["max-connections", "connections"],
      ["max-queues", "queues"],
    ],
  },
  user: {
    list: "user-limits",
    title: "Limits of users",
    noun: "User",
    names: [
      ["max-connections", "connections"],
      ["max-channels", "channels"],
    ],
  },
};

/** kind: "vhost" or "user"; name: of one of them, null for all. */
export class Limits {
  constructor(view, kind, name = null) {
    Object.assign(this, { view, kind, name, what: LIMITS[kind] });
    const { list, title, noun, names } = this.what,
      mayChange = view.user.isAdministrator;
    const said = Object.fromEntries(names);
    this.table = new Table(view, {
      label: title,
      filter: false,
      empty: "No limits.",
      source: new Local({
        load: async (signal) =>
          (await get(name === null ? list : `${list}/${encodeURIComponent(name)}`, { signal })).flatMap((row) =>
            Object.entries(row.value).map(([limit, value]) => ({ of: row[kind], limit, value })),
          ),
      }),
      columns: [
        name === null && { title: noun, main: true, cell: (row) => visible(row.of) },
        { title: "At most", main: name !== null, phone: true, cell: (row) => said[row.limit] ?? row.limit },
        {
          title: "How many",
          end: true,
          phone: true,
          width: "8rem",
          cell: (row) => (row.value < 0 ? "unlimited" : number(row.value)),
        },
        mayChange && {
          title: "",
          end: true,
          width: "6rem",
          phone: true,
          acts: true,
          cell: (row) => button("Clear", () => this.clear(row), { small: true }),
        },
      ].filter(Boolean),
    });
    this.element = panel(name === null ? title : "Limits", this.table.element, {
      actions: mayChange ? [button("Set a limit", () => this.set(), { small: true })] : [],
    });
  }

  refresh(signal) {
    return this.table.refresh(signal);
  }

  where(of, limit) {
    return path`${this.what.list}/${of}/${limit}`;
  }

  async set() {
    const { noun, names } = this.what;
    const fields = [
      this.name === null && {
        name: "of",
        label: noun,
        required: true,
        value: this.kind === "vhost" ? (this.view.vhost ?? "/") : "",
        autofocus: true,
      },
      { name: "limit", label: "Limit", kind: "choice", options: names },
      {
        name: "value",
        label: "How many",
        kind: "number",
        required: true,
        value: 100,
        hint: "-1: no limit",
      },
    ];
    const isDone = await ask(
      "Set a limit",
      fields,
      "Set",
      ({ of = this.name, limit, value }) => put(this.where(of, limit), { value }).then(() => undefined),
      { kind: "primary" },
    );
    if (!isDone) return;
    notify("Limit set.");
    await this.view.once((signal) => this.refresh(signal));
  }

  async clear({ of, limit }) {
    if (
      !(await confirm("Clear this limit?", `${visible(of)}: ${limit}`, "Clear", () =>
        del(this.where(of, limit)).then(() => undefined),
      ))
    )
      return;
    notify("Limit cleared.");
    await this.view.once((signal) => this.refresh(signal));
  }
}
