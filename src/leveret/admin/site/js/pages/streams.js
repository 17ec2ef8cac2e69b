// The list of streams.

import { path } from "../api.js";
import { duration, number, octets, visible } from "../format.js";
import { link } from "../router.js";
import { Remote } from "../sources.js";
import { Table } from "../table.js";

export default function streams(view) {
  const table = new Table(view, {
    label: "Streams", isFull: true, sort: "name", href: (row) => link`streams/${row.vhost}/${row.name}`,
    empty: "No streams yet. To create one, declare a queue with the argument x-queue-type = stream.",
    source: new Remote({ where: view.vhost === null ? "streams" : path`streams/${view.vhost}` }),
    columns: [
      { title: "Name", sort: "name", main: true, cell: (row) => visible(row.name) },
      view.vhost === null && { title: "Virtual host", sort: "vhost", width: "8rem", cell: (row) => visible(row.vhost) },
      { title: "Messages", sort: "messages", end: true, width: "7.5rem", phone: true, cell: (row) => number(row.messages) },
      { title: "First offset", sort: "first_offset", end: true, width: "7.5rem", cell: (row) => number(row.first_offset) },
      { title: "Committed", sort: "committed_offset", end: true, width: "7.5rem", cell: (row) => number(row.committed_offset) },
      { title: "Sealed", sort: "sealed_offset", end: true, width: "7.5rem", cell: (row) => number(row.sealed_offset) },
      { title: "Size", sort: "octets", end: true, width: "6rem", phone: true, cell: (row) => octets(row.octets) },
      { title: "Files", sort: "segments", end: true, width: "5rem", cell: (row) => number(row.segments) },
      { title: "Keeps", width: "9rem", cell: keeps },
      { title: "Consumers", sort: "consumers", end: true, width: "6.5rem", cell: (row) => number(row.consumers) },
      { title: "Lag", sort: "lag", end: true, width: "6rem", phone: true, cell: (row) => number(row.lag) },
    ].filter(Boolean),
  });
  view.show(table.element);
  table.start();
}

/** What retention leaves. */
export function keeps(row) {
  const limits = [row.max_length_bytes !== null && octets(row.max_length_bytes), row.max_age_s !== null && duration(row.max_age_s * 1000)].filter(Boolean);
  return limits.join(", ") || "all";
}
