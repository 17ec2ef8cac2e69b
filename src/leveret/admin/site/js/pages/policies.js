// Policies and operator policies: what is set for queues and exchanges by their names.

import { del, get, path, put } from "../api.js";
import { confirm, notify } from "../dialog.js";
import { h } from "../dom.js";
import { ask } from "../form.js";
import { visible } from "../format.js";
import { Local } from "../sources.js";
import { Table } from "../table.js";
import { button, panel } from "../view.js";

const KINDS = [
  {
    list: "policies",
    title: "Policies",
    noun: "policy",
    may: (user) => user.isPolicymaker,
    applies: [["all", "queues and exchanges"], "queues", "classic_queues", "quorum_queues", "streams", "exchanges"],
    why: "Changing policies requires the policymaker or administrator tag.",
  },
  {
    list: "operator-policies",
    title: "Operator policies",
    noun: "operator policy",
    may: (user) => user.isAdministrator,
    applies: ["queues", "classic_queues", "quorum_queues", "streams"],
    why: "Changing operator policies requires the administrator tag.",
  },
];

export default function policies(view) {
  const both = KINDS.map((kind) => new Policies(view, kind));
  view.poll(
    async (signal) => {
      for (const each of both) await each.table.refresh(signal);
    },
    { everyS: 15 },
  );
  view.show(
    h(
      "p",
      { class: "hint" },
      "Of the policies that match a queue or exchange, the one with the highest priority applies. An operator policy applies in addition and can only tighten limits.",
    ),
    both.map((each) => each.element),
  );
}

class Policies {
  constructor(view, kind) {
    Object.assign(this, { view, kind });
    const where = view.vhost === null ? kind.list : `${kind.list}/${encodeURIComponent(view.vhost)}`,
      may = kind.may(view.user);
    this.table = new Table(view, {
      label: kind.title,
      filter: false,
      empty: `No ${kind.noun} is defined.`,
      source: new Local({ load: (signal) => get(where, { signal }) }),
      columns: [
        { title: "Name", main: true, cell: (row) => visible(row.name) },
        view.vhost === null && { title: "Virtual host", width: "9rem", phone: true, cell: (row) => visible(row.vhost) },
        { title: "Pattern", phone: true, cell: (row) => h("code", null, visible(row.pattern, "(all)")) },
        { title: "Applies to", width: "9rem", cell: (row) => row["apply-to"] },
        {
          title: "Settings",
          cell: (row) => h("code", { title: JSON.stringify(row.definition, null, 1) }, JSON.stringify(row.definition)),
        },
        { title: "Priority", end: true, width: "5.5rem", cell: (row) => String(row.priority) },
        may && {
          title: "",
          end: true,
          width: "11rem",
          phone: true,
          acts: true,
          cell: (row) =>
            h(
              "span",
              { class: "badges end" },
              button("Change", () => this.put(row), { small: true }),
              button("Delete", () => this.remove(row), { small: true }),
            ),
        },
      ].filter(Boolean),
    });
    this.element = panel(
      kind.title,
      h("div", { class: "stack" }, this.table.element, !may && h("p", { class: "hint" }, kind.why)),
      {
        actions: may
          ? [button(`Add a ${kind.noun}`.replace("a o", "an o"), () => this.put(null), { kind: "primary" })]
          : [],
      },
    );
  }

  async put(row) {
    const fields = [
      {
        name: "vhost",
        label: "Virtual host",
        value: row?.vhost ?? this.view.vhost ?? "/",
        required: true,
        readonly: row !== null,
      },
      { name: "name", label: "Name", value: row?.name ?? "", required: true, readonly: row !== null },
      { name: "pattern", label: "Pattern", value: row?.pattern ?? "^", hint: "Regular expression for names" },
      {
        name: "apply",
        label: "Applies to",
        kind: "choice",
        options: this.kind.applies,
        value: row?.["apply-to"] ?? this.kind.applies.flat()[0],
      },
      {
        name: "definition",
        label: "Settings",
        kind: "json",
        value: row?.definition ?? {},
        hint: 'A JSON object, as {"max-length": 10000, "message-ttl": 60000}',
      },
      { name: "priority", label: "Priority", kind: "number", value: row?.priority ?? 0 },
    ];
    const isDone = await ask(
      row ? `Change ${visible(row.name)}` : `Add a ${this.kind.noun}`.replace("a o", "an o"),
      fields,
      row ? "Change" : "Add",
      ({ vhost, name, apply, ...said }) =>
        put(`${this.kind.list}/${path`${vhost}/${name}`}`, { ...said, "apply-to": apply }).then(() => undefined),
      { kind: "primary" },
    );
    if (isDone) await this.done(row ? "Policy changed." : "Policy added.");
  }

  async remove(row) {
    if (
      await confirm(
        `Delete ${visible(row.name)}?`,
        "Its settings no longer apply to queues and exchanges.",
        "Delete",
        () => del(`${this.kind.list}/${path`${row.vhost}/${row.name}`}`).then(() => undefined),
      )
    )
      await this.done("Policy deleted.");
  }

  async done(text) {
    notify(text);
    await this.view.once((signal) => this.table.refresh(signal));
  }
}
