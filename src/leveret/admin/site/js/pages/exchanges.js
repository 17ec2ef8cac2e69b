// The list of exchanges.

import { exchangeName, get, path, put } from "../api.js";
import { OF_EXCHANGES, argumentBadges, asker } from "../arguments.js";
import { notify } from "../dialog.js";
import { h } from "../dom.js";
import { Speeds } from "../flow.js";
import { ask } from "../form.js";
import { visible } from "../format.js";
import { go, link } from "../router.js";
import { Remote } from "../sources.js";
import { Table } from "../table.js";
import { badge, button } from "../view.js";

const COLUMNS =
  "name,vhost,type,durable,auto_delete,internal,policy,arguments,message_stats.publish_in_details.rate,message_stats.publish_out_details.rate";
const addressOf = (row) => link`exchanges/${row.vhost}/${row.name}`;

export default function exchanges(view) {
  const speeds = new Speeds();
  const table = new Table(view, {
    label: "Exchanges",
    isFull: true,
    sort: "name",
    href: addressOf,
    empty: "No exchanges.",
    source: new Remote({ where: view.vhost === null ? "exchanges" : path`exchanges/${view.vhost}`, columns: COLUMNS }),
    tools: [button("Add an exchange", () => add(view), { kind: "primary" })],
    columns: [
      { title: "Name", sort: "name", main: true, cell: (row) => visible(row.name) },
      view.vhost === null && { title: "Virtual host", sort: "vhost", width: "9rem", cell: (row) => visible(row.vhost) },
      { title: "Type", sort: "type", width: "11rem", phone: true, cell: (row) => visible(row.type) },
      { title: "Features", width: "14rem", cell: features },
      {
        title: "In /s",
        sort: "message_stats.publish_in_details.rate",
        end: true,
        width: "6.5rem",
        phone: true,
        cell: (row) => speeds.text(row, "message_stats.publish_in"),
      },
      {
        title: "Out /s",
        sort: "message_stats.publish_out_details.rate",
        end: true,
        width: "6.5rem",
        phone: true,
        cell: (row) => speeds.text(row, "message_stats.publish_out"),
      },
    ].filter(Boolean),
  });
  view.show(table.element);
  table.start();
}

/** What is not as with most exchanges, as badges. */
export function features(row) {
  return h(
    "span",
    { class: "badges" },
    [
      !row.durable && badge("transient", "warn"),
      row.auto_delete && badge("auto-delete"),
      row.internal && badge("internal"),
      argumentBadges(row.arguments, OF_EXCHANGES),
      row.policy && badge(visible(row.policy), "accent", `policy ${row.policy}`),
    ].filter(Boolean),
  );
}

async function add(view) {
  const { exchange_types: types } = await get("overview", { query: { columns: "exchange_types" } });
  const fields = [
    { name: "vhost", label: "Virtual host", value: view.vhost ?? "/", required: true },
    { name: "name", label: "Name", required: true, autofocus: true },
    {
      name: "type",
      label: "Type",
      kind: "choice",
      options: types.filter((each) => !each.internal_purpose).map((each) => each.name),
      value: "direct",
    },
    { name: "durable", label: "Durable: survives a restart", kind: "check", value: true },
    { name: "auto_delete", label: "Auto-delete: deleted with its last binding", kind: "check" },
    { name: "internal", label: "Internal: only exchanges publish to it", kind: "check" },
    { name: "arguments", label: "Arguments", kind: "json", hint: 'A JSON object, as {"alternate-exchange": "lost"}' },
  ];
  const check = asker(OF_EXCHANGES);
  let where;
  const isDone = await ask(
    "Add an exchange",
    fields,
    "Add",
    async ({ vhost, name, ...body }) => {
      check(body.arguments);
      await put(path`exchanges/${vhost}/${exchangeName(name)}`, body);
      where = { vhost, name };
    },
    { kind: "primary" },
  );
  if (!isDone) return;
  notify(`Exchange ${visible(where.name)} added.`);
  go(addressOf(where));
}
