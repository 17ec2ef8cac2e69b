// Direct replies (amq.rabbitmq.reply-to): who waits for them, how many came, and which channels reply to nobody.

import { get, path } from "../api.js";
import { h, setText } from "../dom.js";
import { number, visible } from "../format.js";
import { link } from "../router.js";
import { Local } from "../sources.js";
import { Table } from "../table.js";
import { badge, panel } from "../view.js";

const COLUMNS = "name,number,vhost,user,connection_details,reply_to_consumer_tag,reply_to_delivered,reply_to_dropped";

export default function replies(view) {
  const where = view.vhost === null ? "channels" : path`vhosts/${view.vhost}/channels`;
  const delivered = h("dd", null, "–"), dropped = h("dd", null, "–");
  const table = new Table(view, {
    label: "Channels with direct replies", sort: "reply_to_dropped", isDescending: true, href: (row) => link`channels/${row.name}`,
    empty: "No open channel consumes from amq.rabbitmq.reply-to, and none has replied to a requester that was gone.",
    source: new Local({ load: (signal) => get(where, { query: { replies: true, columns: COLUMNS }, signal }) }),
    columns: [
      { title: "Channel", sort: "name", main: true, cell: (row) => visible(row.name) },
      { title: "User", sort: "user", width: "8rem", cell: (row) => visible(row.user) },
      view.vhost === null && { title: "Virtual host", sort: "vhost", width: "8rem", cell: (row) => visible(row.vhost) },
      { title: "Reply consumer", sort: "reply_to_consumer_tag", width: "14rem", phone: true, cell: (row) => (row.reply_to_consumer_tag === null ? "none" : visible(row.reply_to_consumer_tag)) },
      { title: "Received", sort: "reply_to_delivered", end: true, width: "7rem", phone: true, cell: (row) => number(row.reply_to_delivered) },
      { title: "Undelivered replies", sort: "reply_to_dropped", end: true, width: "12rem", phone: true, cell: (row) => (row.reply_to_dropped > 0 ? badge(number(row.reply_to_dropped), "warn", "Replies published on this channel to requesters that were gone") : "0") },
    ].filter(Boolean),
  });
  view.show(h("dl", { class: "spread-figures" }, h("div", null, h("dt", null, "Replies delivered since the start"), delivered), h("div", null, h("dt", null, "Undelivered replies"), dropped)),
    panel("Channels", [h("p", { class: "note" }, "A reply is dropped if its requester is gone or no longer waits. It is counted on the channel that published it. The totals above include closed channels."), table.element]));
  table.start();
  view.poll(async (signal) => {
    const found = await get("vhosts", { query: { columns: "name,reply_to_delivered,reply_to_dropped" }, signal });
    const some = found.filter(({ name }) => view.vhost === null || name === view.vhost), sum = (field) => some.reduce((total, each) => total + (each[field] ?? 0), 0);
    setText(delivered, number(sum("reply_to_delivered")));
    setText(dropped, number(sum("reply_to_dropped")));
  });
}
