// The list of queries: Spark queries that report their progress, and producers that publish by stages.

import { path } from "../api.js";
import { duration, number, visible } from "../format.js";
import { Remote } from "../sources.js";
import { Table } from "../table.js";

export default function queries(view) {
  const table = new Table(view, {
    label: "Queries", isFull: true, sort: "name",
    empty: "No queries. Spark queries appear here when they write exactly once, or report their progress: leveret.spark.report_queries.",
    source: new Remote({ where: view.vhost === null ? "queries" : path`queries/${view.vhost}` }),
    columns: [
      { title: "Name", sort: "title", main: true, cell: (row) => visible(row.title || row.name) },
      { title: "Id", sort: "name", width: "11rem", cell: (row) => visible(row.name) },
      view.vhost === null && { title: "Virtual host", sort: "vhost", width: "8rem", cell: (row) => visible(row.vhost) },
      { title: "Checkpoint", sort: "checkpoint", cell: (row) => visible(row.checkpoint ?? "") },
      { title: "Reads", width: "12rem", cell: offsets },
      { title: "Lag", sort: "lag", end: true, width: "6rem", phone: true, cell: (row) => number(row.lag) },
      { title: "Last batch", sort: "reported_batch", end: true, width: "6rem", phone: true, cell: (row) => number(row.reported_batch ?? row.last_batch) },
      { title: "Rows of it", sort: "rows", end: true, width: "6rem", cell: (row) => number(row.rows) },
      { title: "Released", sort: "released_messages", end: true, width: "7rem", cell: (row) => number(row.released_messages) },
      { title: "In stages", sort: "messages", end: true, width: "6rem", cell: (row) => number(row.messages) },
      { title: "Reported", sort: "reported_ms", end: true, width: "7rem", cell: (row) => (row.reported_ms === null ? "–" : `${duration(row.reported_ms)} ago`) },
    ].filter(Boolean),
  });
  view.show(table.element);
  table.start();
}

/** Which streams a query reads, and the offset of the first message of each that it has not read. */
function offsets(row) {
  return (row.streams ?? []).map((each) => `${visible(each.name)} from ${number(each.next_offset)}`).join(", ");
}
