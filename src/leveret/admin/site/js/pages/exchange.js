// One exchange: what goes through it, and how it is bound.

import { del, exchangeName, get, path } from "../api.js";
import { Complaint, OF_EXCHANGES } from "../arguments.js";
import { Bindings } from "../bindings.js";
import { Chart, Rates, historyOf } from "../chart.js";
import { confirm, notify } from "../dialog.js";
import { h } from "../dom.js";
import { Bound } from "../drawing/bound.js";
import { number, rate, visible, yesNo } from "../format.js";
import { publish } from "../messages.js";
import { go, link } from "../router.js";
import { Facts, button, panel, table } from "../view.js";

const COUNTED = ["publish_in", "publish_out"];

export default function exchange(view) {
  const { vhost, name } = view.params, where = path`exchanges/${vhost}/${exchangeName(name)}`, isOwn = name !== "" && !name.startsWith("amq.");
  view.title(visible(name), [["Exchanges", "#/exchanges"]]);
  const speeds = historyOf(`exchange ${vhost} ${name}`, COUNTED), rates = new Rates(), about = new Facts(), complaint = new Complaint(OF_EXCHANGES);
  const chart = new Chart(view, { title: "Messages per second", history: speeds, format: rate, series: [{ label: "published to it", colour: "--line-1" }, { label: "routed to queues", colour: "--line-4" }] });
  const from = new Bindings(view, { title: "Bindings from this exchange", vhost, name, type: "exchange", side: "source" });
  const to = new Bindings(view, { title: "Bindings to this exchange", vhost, name, type: "exchange", side: "destination" });
  const bound = name === "" ? null : new Bound(view, { vhost, exchange: name });
  const poll = view.poll(async (signal) => {
    const found = await get(where, { signal });
    speeds.add(rates.of(COUNTED.map((each) => found.message_stats?.[each] ?? 0)));
    chart.update();
    complaint.update(found.arguments);
    about.update([["Virtual host", visible(vhost)], ["Type", found.type], ["Durable", yesNo(found.durable)], ["Auto-delete", yesNo(found.auto_delete)], ["Internal", yesNo(found.internal)], ["Policy", visible(found.policy ?? "", "none")],
      ["Arguments", table(found.arguments)], ["Declared by", visible(found.user_who_performed_action ?? "", "–")], ["Published in total", number(found.message_stats?.publish_in ?? 0)]]);
    await from.refresh(signal);
    if (name !== "") await to.refresh(signal);
    await bound?.refresh(signal);
  });
  const remove = async () => {
    if (!await confirm(`Delete ${visible(name)}?`, "Its bindings are deleted too. Publishing to it will then fail and close the publisher's channel.", "Delete", () => view.deleteWith(() => del(where)))) return;
    notify("Exchange deleted.");
    go("#/exchanges");
  };
  view.show(
    h("div", { class: "actions" }, button("Publish", () => publish(vhost, name, "", () => poll.now()), { kind: "primary" }), h("a", { class: "button", href: `${link`explain/${vhost}`}?${new URLSearchParams({ exchange: name })}` }, "Explain a route"), isOwn && button("Delete", remove, { kind: "danger" })),
    complaint.element,
    h("div", { class: "columns" }, chart.element, panel("Properties", about.element)),
    bound && panel("Topology", bound.element),
    name === "" ? panel("Bindings", h("p", { class: "hint" }, "Every queue is bound to the default exchange by its own name. These bindings cannot be changed.")) : h("div", { class: "columns" }, from.element, to.element));
}
