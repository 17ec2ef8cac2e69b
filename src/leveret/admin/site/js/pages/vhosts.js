// The virtual hosts.

import { path, put } from "../api.js";
import { notify } from "../dialog.js";
import { Speeds } from "../flow.js";
import { ask } from "../form.js";
import { number, visible } from "../format.js";
import { go, link } from "../router.js";
import { Remote } from "../sources.js";
import { Table } from "../table.js";
import { button } from "../view.js";

const COLUMNS =
  "name,description,tracing,messages,messages_ready,messages_unacknowledged,message_stats.publish_details.rate,message_stats.deliver_get_details.rate";

export default function vhosts(view) {
  const speeds = new Speeds();
  const table = new Table(view, {
    label: "Virtual hosts",
    isFull: true,
    sort: "name",
    href: view.user.isAdministrator ? (row) => link`vhosts/${row.name}` : null,
    source: new Remote({ where: "vhosts", columns: COLUMNS }),
    tools: view.user.isAdministrator ? [button("Add a virtual host", add, { kind: "primary" })] : [],
    columns: [
      { title: "Name", sort: "name", main: true, cell: (row) => visible(row.name) },
      { title: "Description", cell: (row) => visible(row.description ?? "", "") },
      {
        title: "Ready",
        sort: "messages_ready",
        end: true,
        width: "7rem",
        phone: true,
        cell: (row) => number(row.messages_ready),
      },
      {
        title: "Unacked",
        sort: "messages_unacknowledged",
        end: true,
        width: "7rem",
        phone: true,
        cell: (row) => number(row.messages_unacknowledged),
      },
      {
        title: "In /s",
        sort: "message_stats.publish_details.rate",
        end: true,
        width: "6.5rem",
        phone: true,
        cell: (row) => speeds.text(row, "message_stats.publish"),
      },
      {
        title: "Out /s",
        sort: "message_stats.deliver_get_details.rate",
        end: true,
        width: "6.5rem",
        phone: true,
        cell: (row) => speeds.text(row, "message_stats.deliver_get"),
      },
      { title: "Tracing", width: "5.5rem", cell: (row) => (row.tracing ? "on" : "–") },
    ],
  });
  view.show(table.element);
  table.start();
}

async function add() {
  let made;
  const isDone = await ask(
    "Add a virtual host",
    [
      { name: "name", label: "Name", required: true, autofocus: true },
      { name: "description", label: "Description" },
    ],
    "Add",
    async ({ name, description }) => {
      await put(path`vhosts/${name}`, { description });
      made = name;
    },
    { kind: "primary", text: "You get all permissions in it. Set the permissions of other users on its page." },
  );
  if (!isDone) return;
  notify(`Virtual host ${visible(made)} added.`);
  document.dispatchEvent(new Event("vhostschange"));
  go(link`vhosts/${made}`);
}
