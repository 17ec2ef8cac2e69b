// One queue: how it goes, what is bound to it, who consumes, and what can be done with it.

import { del, get, path } from "../api.js";
import { Complaint, OF_QUEUES } from "../arguments.js";
import { Bindings } from "../bindings.js";
import { Chart, Rates, historyOf } from "../chart.js";
import { consumers } from "../consumers.js";
import { confirm, notify } from "../dialog.js";
import { h, setText } from "../dom.js";
import { number, octets, rate, visible, yesNo } from "../format.js";
import { getMessages, publish } from "../messages.js";
import { go, link } from "../router.js";
import { Facts, badge, button, panel, table } from "../view.js";

const EXPLAIN = "Explain a route";
const COUNTED = ["publish", "deliver_get", "ack", "redeliver"];

export default function queue(view) {
  const { vhost, name } = view.params,
    where = path`queues/${vhost}/${name}`,
    key = `queue ${vhost} ${name}`;
  view.title(visible(name), [["Queues", "#/queues"]]);
  const depth = historyOf(`${key} depth`, ["ready", "unacked"]),
    speeds = historyOf(`${key} rates`, COUNTED),
    rates = new Rates();
  const charts = [
    new Chart(view, {
      title: "Queued messages",
      history: depth,
      format: number,
      series: [
        { label: "ready", colour: "--line-1" },
        { label: "unacked", colour: "--line-2" },
      ],
    }),
    new Chart(view, {
      title: "Messages per second",
      history: speeds,
      format: rate,
      series: [
        { label: "published", colour: "--line-1" },
        { label: "delivered", colour: "--line-4" },
        { label: "acknowledged", colour: "--line-3" },
        { label: "redelivered", colour: "--line-2" },
      ],
    }),
  ];
  const about = new Facts(),
    settings = new Facts(),
    complaint = new Complaint(OF_QUEUES),
    why = h("a", { class: "button", href: `${link`explain/${vhost}`}?${new URLSearchParams({ destination: name })}` }, EXPLAIN),
    who = consumers(view, () => found?.consumer_details ?? []);
  const bindings = new Bindings(view, { title: "Bindings to this queue", vhost, name, type: "queue", side: "destination" });
  let found = null;
  const poll = view.poll(async (signal) => {
    found = await get(where, { signal });
    depth.add([found.messages_ready, found.messages_unacknowledged]);
    speeds.add(rates.of(COUNTED.map((each) => found.message_stats?.[each] ?? 0)));
    for (const chart of charts) chart.update();
    about.update(now(found));
    settings.update(made(found));
    complaint.update(found.arguments);
    setText(why, found.messages > 0 ? EXPLAIN : "Why is nothing here?");
    await who.refresh(signal);
    await bindings.refresh(signal);
  });
  const isStream = () => found?.type === "stream";
  view.show(
    h(
      "div",
      { class: "actions" },
      button("Publish", () => publish(vhost, "", name, () => poll.now()), { kind: "primary" }),
      button("Get messages", () =>
        isStream()
          ? notify("A stream is read by consumers from an offset. To see its messages, use Browse messages or leveret stream head.", "warn")
          : getMessages(vhost, name, () => poll.now()),
      ),
      h("a", { class: "button", href: link`browse/${vhost}/${name}` }, "Browse messages"),
      why,
      button("Purge", () => found && purge(where, found, poll), { kind: "danger" }),
      button("Delete", () => found && remove(view, where, found), { kind: "danger" }),
    ),
    complaint.element,
    h(
      "div",
      { class: "columns" },
      charts.map((each) => each.element),
    ),
    h("div", { class: "columns" }, panel("Now", about.element), panel("Declaration", settings.element)),
    panel("Consumers", who.element),
    bindings.element,
  );
}

function now(found) {
  return [
    ["State", badge(found.state, found.state === "running" ? "good" : "warn")],
    ["Messages", number(found.messages)],
    ["Ready", number(found.messages_ready)],
    ["Unacknowledged", number(found.messages_unacknowledged)],
    ["Consumers", number(found.consumers)],
    ["Message size", octets(found.message_bytes)],
    ["On disk only", number(found.messages_paged_out ?? 0)],
    ["Persistent", number(found.messages_persistent)],
    ["Memory", octets(found.memory)],
    found.type === "quorum" && ["Parked dead letters", number(found.messages_dlx)],
    found.single_active_consumer_tag && ["Active consumer", visible(found.single_active_consumer_tag)],
    found.exclusive && ["Owner", visible(found.owner_pid_details?.name ?? "")],
  ];
}

function made(found) {
  return [
    ["Virtual host", visible(found.vhost)],
    ["Type", found.type],
    ["Durable", yesNo(found.durable)],
    ["Auto-delete", yesNo(found.auto_delete)],
    ["Exclusive", yesNo(found.exclusive)],
    ["Arguments", table(found.arguments)],
    ["Policy", visible(found.policy ?? "", "none")],
    ["Operator policy", visible(found.operator_policy ?? "", "none")],
    ["Policy settings", table(found.effective_policy_definition)],
  ];
}

async function purge(where, found, poll) {
  const text = `Its ${number(found.messages_ready)} ready messages are removed and cannot be recovered. Unacknowledged messages stay.`;
  if (
    !(await confirm(`Purge ${visible(found.name)}?`, text, "Purge", () =>
      del(`${where}/contents`).then(() => undefined),
    ))
  )
    return;
  notify("Queue purged.");
  poll.now();
}

async function remove(view, where, found) {
  const text = `Its ${number(found.messages)} messages and its bindings are deleted, and its ${number(found.consumers)} consumers are cancelled. This cannot be undone.`;
  if (!(await confirm(`Delete ${visible(found.name)}?`, text, "Delete", () => view.deleteWith(() => del(where)))))
    return;
  notify("Queue deleted.");
  go("#/queues");
}
