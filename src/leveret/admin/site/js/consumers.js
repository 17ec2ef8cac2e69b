// A table of consumers, of a queue or of a channel.

import { h } from "./dom.js";
import { number, visible, yesNo } from "./format.js";
import { link } from "./router.js";
import { Local } from "./sources.js";
import { Table } from "./table.js";
import { badge } from "./view.js";

/** rows(): as the API gives them; isOfChannel: the queue is shown, not the channel. */
export function consumers(view, rows, { isOfChannel = false } = {}) {
  return new Table(view, {
    label: "Consumers",
    filter: false,
    empty: "No consumers.",
    source: new Local({ load: async () => rows() }),
    columns: [
      isOfChannel
        ? {
            title: "Queue",
            main: true,
            cell: ({ queue }) => h("a", { href: link`queues/${queue.vhost}/${queue.name}` }, visible(queue.name)),
          }
        : {
            title: "Channel",
            main: true,
            cell: (row) =>
              h("a", { href: link`channels/${row.channel_details.name}` }, visible(row.channel_details.name)),
          },
      { title: "Tag", width: "16rem", cell: (row) => visible(row.consumer_tag) },
      { title: "Prefetch", end: true, width: "6rem", phone: true, cell: (row) => number(row.prefetch_count) },
      { title: "Acks", width: "4rem", cell: (row) => yesNo(row.ack_required) },
      {
        title: "State",
        width: "8rem",
        phone: true,
        cell: (row) => badge(row.activity_status.replace("_", " "), row.active ? "good" : "plain"),
      },
      {
        title: "Arguments",
        width: "10rem",
        cell: (row) => (Object.keys(row.arguments).length ? JSON.stringify(row.arguments) : "–"),
      },
    ],
  });
}
