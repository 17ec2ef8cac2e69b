// The list of queues: paged, filtered and sorted by the broker, as many as there are.

import { path, put } from "../api.js";
import { OF_QUEUES, argumentBadges, asker } from "../arguments.js";
import { ask } from "../form.js";
import { notify } from "../dialog.js";
import { flow } from "../flow.js";
import { number, octets, value, visible } from "../format.js";
import { go, link } from "../router.js";
import { Remote } from "../sources.js";
import { Table } from "../table.js";
import { h } from "../dom.js";
import { badge, button } from "../view.js";

const COLUMNS = [
  "name",
  "vhost",
  "type",
  "durable",
  "exclusive",
  "auto_delete",
  "policy",
  "arguments",
  "effective_policy_definition",
  "messages",
  "messages_ready",
  "messages_unacknowledged",
  "consumers",
  "message_bytes",
  "state",
  "message_stats.publish_details.rate",
  "message_stats.deliver_get_details.rate",
  "message_stats.ack_details.rate",
].join(",");

export const addressOf = (queue) => link`queues/${queue.vhost}/${queue.name}`;

export default function queues(view) {
  const table = new Table(view, {
    label: "Queues",
    isFull: true,
    sort: "name",
    href: addressOf,
    empty: "No queues yet.",
    source: new Remote({ where: view.vhost === null ? "queues" : path`queues/${view.vhost}`, columns: COLUMNS }),
    tools: [button("Add a queue", () => add(view), { kind: "primary" })],
    columns: [
      { title: "Name", sort: "name", main: true, cell: (row) => visible(row.name) },
      view.vhost === null && { title: "Virtual host", sort: "vhost", width: "8rem", cell: (row) => visible(row.vhost) },
      { title: "Features", width: "17rem", cell: features },
      {
        title: "Ready",
        sort: "messages_ready",
        end: true,
        width: "6.5rem",
        phone: true,
        cell: (row) => number(row.messages_ready),
      },
      {
        title: "Unacked",
        sort: "messages_unacknowledged",
        end: true,
        width: "6rem",
        phone: true,
        cell: (row) => number(row.messages_unacknowledged),
      },
      ...flow(),
      { title: "Consumers", sort: "consumers", end: true, width: "6.5rem", cell: (row) => number(row.consumers) },
      { title: "Size", sort: "message_bytes", end: true, width: "6rem", cell: (row) => octets(row.message_bytes) },
    ].filter(Boolean),
  });
  view.show(table.element);
  table.start();
}

/** What is not as with most queues, as badges. */
export function features(row) {
  const words = [
    row.type !== "classic" && [row.type],
    !row.durable && ["transient", "warn"],
    row.exclusive && ["exclusive"],
    row.auto_delete && ["auto-delete"],
  ];
  const rules = Object.entries(row.effective_policy_definition ?? {}).map(([name, given]) => `${name}: ${value(given)}`);
  return h(
    "span",
    { class: "badges" },
    words.filter(Boolean).map((each) => badge(...each)),
    argumentBadges(row.arguments, OF_QUEUES),
    row.policy && badge(visible(row.policy), "accent", [`policy ${row.policy}`, ...rules].join("\n")),
  );
}

async function add(view) {
  const fields = [
    { name: "vhost", label: "Virtual host", value: view.vhost ?? "/", required: true },
    { name: "name", label: "Name", required: true, autofocus: true },
    { name: "type", label: "Type", kind: "choice", options: ["classic", "quorum", "stream"] },
    { name: "durable", label: "Durable: survives a restart", kind: "check", value: true },
    { name: "auto_delete", label: "Auto-delete: deleted with its last consumer", kind: "check" },
    {
      name: "arguments",
      label: "Arguments",
      kind: "json",
      hint: 'A JSON object, as {"x-max-length": 1000, "x-dead-letter-exchange": "dead"}',
    },
  ];
  const check = asker(OF_QUEUES);
  let where;
  const isDone = await ask(
    "Add a queue",
    fields,
    "Add",
    async ({ vhost, name, type, durable, auto_delete, arguments: some }) => {
      check(some);
      await put(path`queues/${vhost}/${name}`, {
        durable,
        auto_delete,
        arguments: type === "classic" ? some : { "x-queue-type": type, ...some },
      });
      where = { vhost, name };
    },
  );
  if (!isDone) return;
  notify(`Queue ${visible(where.name)} added.`);
  go(addressOf(where));
}
