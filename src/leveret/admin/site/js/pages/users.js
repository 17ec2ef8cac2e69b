// The users.

import { get, path, put } from "../api.js";
import { notify } from "../dialog.js";
import { h } from "../dom.js";
import { ask } from "../form.js";
import { visible } from "../format.js";
import { go, link } from "../router.js";
import { Local } from "../sources.js";
import { Table } from "../table.js";
import { badge, button } from "../view.js";

export const TAGS_HINT =
  "Separated by commas: management, policymaker, monitoring, administrator; empty: no access to this page";
/** Tags as a list, however the API says them. */
export const tagsOf = (user) => (Array.isArray(user.tags) ? user.tags : String(user.tags).split(",")).filter(Boolean);

export default function users(view) {
  const table = new Table(view, {
    label: "Users",
    isFull: true,
    sort: "name",
    href: (row) => link`users/${row.name}`,
    source: new Local({
      load: async (signal) => {
        const [all, permissions] = [await get("users", { signal }), await get("permissions", { signal })];
        const vhosts = (name) => permissions.filter((each) => each.user === name).map((each) => each.vhost);
        return all.map((user) => ({ ...user, vhosts: vhosts(user.name) }));
      },
    }),
    tools: [button("Add a user", add, { kind: "primary" })],
    columns: [
      { title: "Name", sort: "name", main: true, cell: (row) => visible(row.name) },
      {
        title: "Tags",
        phone: true,
        cell: (row) =>
          h(
            "span",
            { class: "badges" },
            tagsOf(row).map((tag) => badge(visible(tag), "accent")),
          ),
      },
      {
        title: "Virtual hosts",
        phone: true,
        cell: (row) => (row.vhosts.length ? row.vhosts.map((each) => visible(each)).join(", ") : "no virtual host"),
      },
      { title: "Has a password", width: "9rem", cell: (row) => (row.password_hash ? "yes" : badge("no", "warn")) },
    ],
  });
  view.show(table.element);
  table.poll = view.poll((signal) => table.refresh(signal), { everyS: 30 });
}

async function add() {
  let made;
  const fields = [
    { name: "name", label: "Name", required: true, autofocus: true },
    { name: "password", label: "Password", kind: "password", required: true },
    { name: "tags", label: "Tags", hint: TAGS_HINT },
  ];
  const isDone = await ask(
    "Add a user",
    fields,
    "Add",
    async ({ name, password, tags }) => {
      await put(path`users/${name}`, { password, tags });
      made = name;
    },
    { kind: "primary", text: "A new user has no access to virtual hosts until permissions are set." },
  );
  if (!isDone) return;
  notify(`User ${visible(made)} added.`);
  go(link`users/${made}`);
}
