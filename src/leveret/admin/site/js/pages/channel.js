// One channel: what it publishes and consumes.

import { get, path } from "../api.js";
import { modes } from "../channels.js";
import { Chart, Rates, historyOf } from "../chart.js";
import { consumers } from "../consumers.js";
import { h } from "../dom.js";
import { number, rate, visible } from "../format.js";
import { link } from "../router.js";
import { Facts, panel } from "../view.js";

const COUNTED = ["publish", "confirm", "deliver_get", "ack"];

export default function channel(view) {
  const { name } = view.params;
  view.title(visible(name), [["Channels", "#/channels"]]);
  const speeds = historyOf(`channel ${name}`, COUNTED), rates = new Rates(), about = new Facts();
  const chart = new Chart(view, { title: "Messages per second", history: speeds, format: rate, series: [
    { label: "published", colour: "--line-1" }, { label: "confirmed", colour: "--line-6" }, { label: "delivered", colour: "--line-4" }, { label: "acknowledged", colour: "--line-3" }] });
  let found = null;
  const who = consumers(view, () => found?.consumer_details ?? [], { isOfChannel: true });
  view.poll(async (signal) => {
    found = await get(path`channels/${name}`, { signal });
    speeds.add(rates.of(COUNTED.map((each) => found.message_stats?.[each] ?? 0)));
    chart.update();
    const { connection_details: connection } = found;
    about.update([["Connection", h("a", { href: link`connections/${connection.name}` }, visible(connection.name))], ["User", visible(found.user)], ["Virtual host", visible(found.vhost)], ["Mode", modes(found)],
      ["Prefetch of each consumer", found.prefetch_count || "unlimited"], ["Prefetch of the channel", found.global_prefetch_count || "unlimited"], ["Unacknowledged", number(found.messages_unacknowledged)],
      ["Unconfirmed", number(found.messages_unconfirmed)], found.transactional && ["Uncommitted", `${number(found.messages_uncommitted)} messages, ${number(found.acks_uncommitted)} acks`]]);
    await who.refresh(signal);
  });
  view.show(h("div", { class: "columns" }, chart.element, panel("Channel", about.element)), panel("Consumers", who.element));
}
