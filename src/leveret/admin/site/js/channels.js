// The columns of a table of channels.

import { h } from "./dom.js";
import { flow } from "./flow.js";
import { number, visible } from "./format.js";
import { badge } from "./view.js";

export const CHANNEL_COLUMNS = [
  "name",
  "vhost",
  "user",
  "number",
  "confirm",
  "transactional",
  "consumer_count",
  "prefetch_count",
  "global_prefetch_count",
  "messages_unacknowledged",
  "messages_unconfirmed",
  "message_stats.publish_details.rate",
  "message_stats.deliver_get_details.rate",
  "message_stats.ack_details.rate",
].join(",");

/** What a channel has asked for, as badges. */
export function modes(row) {
  return h(
    "span",
    { class: "badges" },
    [row.confirm && badge("confirms", "accent"), row.transactional && badge("transactions", "warn")].filter(Boolean),
  );
}

export function channelColumns({ hasUser = false } = {}) {
  return [
    { title: "Channel", sort: "name", main: true, cell: (row) => visible(row.name) },
    hasUser && { title: "User", sort: "user", width: "8rem", cell: (row) => visible(row.user) },
    { title: "Mode", width: "9rem", cell: modes },
    {
      title: "Consumers",
      sort: "consumer_count",
      end: true,
      width: "6.5rem",
      cell: (row) => number(row.consumer_count),
    },
    {
      title: "Prefetch",
      sort: "prefetch_count",
      end: true,
      width: "5.5rem",
      cell: (row) => number(row.prefetch_count || row.global_prefetch_count),
    },
    {
      title: "Unacked",
      sort: "messages_unacknowledged",
      end: true,
      width: "6rem",
      phone: true,
      cell: (row) => number(row.messages_unacknowledged),
    },
    {
      title: "Unconfirmed",
      sort: "messages_unconfirmed",
      end: true,
      width: "7.5rem",
      cell: (row) => number(row.messages_unconfirmed),
    },
    ...flow(),
  ].filter(Boolean);
}
