// Permissions and topic permissions, of a user or in a virtual host: tables, set, clear.

import { del, get, path, put } from "./api.js";
import { confirm, notify } from "./dialog.js";
import { h } from "./dom.js";
import { ask } from "./form.js";
import { visible } from "./format.js";
import { link } from "./router.js";
import { Local } from "./sources.js";
import { Table } from "./table.js";
import { button, panel } from "./view.js";

const EXPRESSION = "Regular expression for names; empty: none, .*: all";
const code = (text) => h("code", null, text === "" ? "none" : visible(text));

/** of: "user" or "vhost", and its name. element has both tables; refresh(signal) asks for them. */
export class Permissions {
  constructor(view, of, name) {
    Object.assign(this, { view, of, name, other: of === "user" ? "vhost" : "user" });
    const first = {
      title: of === "user" ? "Virtual host" : "User",
      main: true,
      cell: (row) =>
        h("a", { href: of === "user" ? link`vhosts/${row.vhost}` : link`users/${row.user}` }, visible(row[this.other])),
    };
    const last = (does) => ({
      title: "",
      width: "6rem",
      end: true,
      phone: true,
      acts: true,
      cell: (row) => button("Clear", () => does(row), { small: true }),
    });
    const shown = (title, key = title.toLowerCase()) => ({ title, phone: true, cell: (row) => code(row[key]) });
    const list = of === "user" ? path`users/${name}/` : path`vhosts/${name}/`;
    this.plain = new Table(view, {
      label: "Permissions",
      filter: false,
      empty: of === "user" ? "This user has no permissions in any virtual host." : "No user has permissions here.",
      source: new Local({ load: (signal) => get(`${list}permissions`, { signal }) }),
      columns: [first, shown("Configure"), shown("Write"), shown("Read"), last((row) => this.clear(row))],
    });
    this.topics = new Table(view, {
      label: "Topic permissions",
      filter: false,
      empty: "None: routing keys are unrestricted.",
      source: new Local({ load: (signal) => get(`${list}topic-permissions`, { signal }) }),
      columns: [
        first,
        { title: "Exchange", phone: true, cell: (row) => visible(row.exchange) },
        shown("Write"),
        shown("Read"),
        last((row) => this.clearTopic(row)),
      ],
    });
    this.element = h(
      "div",
      { class: "stack" },
      panel("Permissions", this.plain.element, {
        actions: [button("Set a permission", () => this.set(), { small: true })],
      }),
      panel("Topic permissions", this.topics.element, {
        actions: [button("Set a topic permission", () => this.setTopic(), { small: true })],
      }),
    );
  }

  async refresh(signal) {
    await this.plain.refresh(signal);
    await this.topics.refresh(signal);
  }

  ends(row) {
    return this.of === "user"
      ? { user: this.name, vhost: row[this.other] }
      : { user: row[this.other], vhost: this.name };
  }

  fields(...more) {
    return [
      {
        name: this.other,
        label: this.of === "user" ? "Virtual host" : "User",
        required: true,
        value: this.of === "user" ? "/" : "",
        autofocus: true,
      },
      ...more,
    ];
  }

  async set() {
    const each = ["configure", "write", "read"].map((name) => ({
      name,
      label: name[0].toUpperCase() + name.slice(1),
      value: ".*",
      hint: name === "configure" ? EXPRESSION : null,
    }));
    await this.change(
      await ask(
        "Set a permission",
        this.fields(...each),
        "Set",
        ({ configure, write, read, ...row }) => {
          const { user, vhost } = this.ends(row);
          return put(path`permissions/${vhost}/${user}`, { configure, write, read }).then(() => undefined);
        },
        { kind: "primary" },
      ),
      "Permission set.",
    );
  }

  async setTopic() {
    const fields = this.fields(
      { name: "exchange", label: "Exchange", value: "amq.topic", required: true },
      { name: "write", label: "Write", value: ".*", hint: "Regular expression for routing keys of messages" },
      { name: "read", label: "Read", value: ".*", hint: "Regular expression for routing keys of bindings" },
    );
    await this.change(
      await ask(
        "Set a topic permission",
        fields,
        "Set",
        ({ exchange, write, read, ...row }) => {
          const { user, vhost } = this.ends(row);
          return put(path`topic-permissions/${vhost}/${user}`, { exchange, write, read }).then(() => undefined);
        },
        { kind: "primary" },
      ),
      "Topic permission set.",
    );
  }

  async clear(row) {
    await this.change(
      await confirm(
        "Clear this permission?",
        `${visible(row.user)} loses access to ${visible(row.vhost)}.`,
        "Clear",
        () => del(path`permissions/${row.vhost}/${row.user}`).then(() => undefined),
      ),
      "Permission cleared.",
    );
  }

  async clearTopic(row) {
    await this.change(
      await confirm(
        "Clear this topic permission?",
        `Routing keys on ${visible(row.exchange)} will be unrestricted for ${visible(row.user)}.`,
        "Clear",
        () => del(path`topic-permissions/${row.vhost}/${row.user}/${row.exchange}`).then(() => undefined),
      ),
      "Topic permission cleared.",
    );
  }

  async change(isDone, text) {
    if (!isDone) return;
    notify(text);
    await this.view.once((signal) => this.refresh(signal));
  }
}
