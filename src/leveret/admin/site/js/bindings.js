// Bindings of a queue or an exchange: a table, add, remove.

import { del, exchangeName, get, path, post } from "./api.js";
import { confirm, notify } from "./dialog.js";
import { h } from "./dom.js";
import { ask } from "./form.js";
import { visible } from "./format.js";
import { link } from "./router.js";
import { Local } from "./sources.js";
import { Table } from "./table.js";
import { button, panel, table as pairs } from "./view.js";

const TYPES = { queue: "q", exchange: "e" };
const REFRESH_MS = 30_000; // bindings are many, and seldom change

/** side: "source" shows what is bound to this exchange, "destination" where this queue or exchange is bound. */
export class Bindings {
  constructor(view, { title, vhost, name, type, side }) {
    Object.assign(this, { view, vhost, name, type, side, askedMs: -Infinity });
    const own =
      type === "queue"
        ? path`queues/${vhost}/${name}/bindings`
        : `${path`exchanges/${vhost}/${exchangeName(name)}/bindings`}/${side}`;
    this.table = new Table(view, {
      label: title,
      filter: false,
      empty: side === "source" ? "No bindings from here." : "No bindings to here.",
      source: new Local({ load: (signal) => get(own, { signal }) }),
      columns: [
        side === "source"
          ? { title: "To", main: true, cell: (row) => this.end(row.destination_type, row.destination) }
          : { title: "From", main: true, cell: (row) => this.end("exchange", row.source) },
        { title: "Routing key", phone: true, cell: (row) => visible(row.routing_key, "–") },
        {
          title: "Arguments",
          cell: (row) => (Object.keys(row.arguments).length ? JSON.stringify(row.arguments) : "–"),
        },
        {
          title: "",
          width: "6.5rem",
          end: true,
          phone: true,
          acts: true,
          cell: (row) => (row.source === "" ? "" : button("Remove", () => this.remove(row), { small: true })),
        },
      ],
    });
    const canAdd = name !== "" || type === "queue";
    this.element = panel(title, this.table.element, {
      actions: canAdd ? [button("Add a binding", () => this.add(), { small: true })] : [],
    });
  }

  end(type, name) {
    if (name === "") return h("span", null, visible(name));
    return h(
      "a",
      { href: type === "queue" ? link`queues/${this.vhost}/${name}` : link`exchanges/${this.vhost}/${name}` },
      type === "exchange" && this.side === "source" ? `${visible(name)} (exchange)` : visible(name),
    );
  }

  /** Ask if it is time to; to be awaited in the page's poll. */
  async refresh(signal) {
    if (performance.now() - this.askedMs < REFRESH_MS) return;
    await this.table.refresh(signal);
    this.askedMs = performance.now();
  }

  async again() {
    this.askedMs = -Infinity;
    await this.view.once((signal) => this.refresh(signal));
  }

  where({ source, destination, destination_type: type }) {
    return path`bindings/${this.vhost}/e/${exchangeName(source)}/${TYPES[type]}/${exchangeName(destination)}`;
  }

  async add() {
    const isSource = this.side === "source";
    const fields = [
      isSource && {
        name: "destination_type",
        label: "To",
        kind: "choice",
        options: [
          ["queue", "a queue"],
          ["exchange", "an exchange"],
        ],
      },
      { name: "other", label: isSource ? "Destination name" : "From exchange", required: true, autofocus: true },
      { name: "routing_key", label: "Routing key" },
      {
        name: "arguments",
        label: "Arguments",
        kind: "json",
        hint: 'For a headers exchange, as {"x-match": "all", "kind": "invoice"}',
      },
    ];
    const isDone = await ask(
      "Add a binding",
      fields,
      "Bind",
      ({ destination_type: type = this.type, other, routing_key, arguments: some }) => {
        const ends = isSource
          ? { source: this.name, destination: other, destination_type: type }
          : { source: other, destination: this.name, destination_type: type };
        return post(this.where(ends), { routing_key, arguments: some }).then(() => undefined);
      },
      { kind: "primary" },
    );
    if (isDone) await this.again();
  }

  async remove(row) {
    const text = `${visible(row.source)} → ${visible(row.destination)}, routing key ${visible(row.routing_key, "(none)")}. It will no longer route messages.`;
    if (
      !(await confirm("Remove this binding?", text, "Remove", () =>
        del(`${this.where(row)}/${encodeURIComponent(row.properties_key)}`).then(() => undefined),
      ))
    )
      return;
    notify("Binding removed.");
    await this.again();
  }
}
