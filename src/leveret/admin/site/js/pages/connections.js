// The list of connections.

import { get, path } from "../api.js";
import { duration, number, octets, visible } from "../format.js";
import { link } from "../router.js";
import { Local, Remote, at } from "../sources.js";
import { Table } from "../table.js";
import { badge } from "../view.js";

const COLUMNS =
  "name,user_provided_name,vhost,user,state,type,ssl,protocol,channels,connected_at,recv_oct_details.rate,send_oct_details.rate,client_properties.product";
const STATES = { running: "good", blocked: "bad", closing: "warn" };

/** How a connection is. */
export const stateOf = (row) => badge(row.state, STATES[row.state] ?? "plain");
/** What a client calls itself, or where it comes from. */
export const nameOf = (row) =>
  row.user_provided_name ? `${visible(row.user_provided_name)} · ${visible(row.name)}` : visible(row.name);
const flow = (row, name) => `${octets(Math.round(at(row, `${name}_details.rate`) ?? 0))}/s`;

export default function connections(view) {
  // the lists of one virtual host come whole
  const source =
    view.vhost === null
      ? new Remote({ where: "connections", columns: COLUMNS })
      : new Local({
          load: (signal) => get(path`vhosts/${view.vhost}/connections`, { query: { columns: COLUMNS }, signal }),
          texts: (row) => [row.name, row.user_provided_name ?? ""],
        });
  const table = new Table(view, {
    label: "Connections",
    isFull: true,
    sort: "name",
    source,
    href: (row) => link`connections/${row.name}`,
    empty: view.user.isMonitor
      ? "No connections."
      : "You have no connections. Seeing those of other users requires the monitoring or administrator tag.",
    columns: [
      { title: "Name", sort: "name", main: true, cell: nameOf },
      { title: "User", sort: "user", width: "6.5rem", phone: true, cell: (row) => visible(row.user ?? "", "–") },
      view.vhost === null && {
        title: "Virtual host",
        sort: "vhost",
        width: "6.5rem",
        cell: (row) => visible(row.vhost),
      },
      { title: "State", sort: "state", width: "6.5rem", phone: true, cell: stateOf },
      { title: "TLS", sort: "ssl", width: "3.5rem", cell: (row) => (row.ssl ? "yes" : "–") },
      { title: "Channels", sort: "channels", end: true, width: "5.5rem", cell: (row) => number(row.channels) },
      {
        title: "From client",
        sort: "recv_oct_details.rate",
        end: true,
        width: "7rem",
        phone: true,
        cell: (row) => flow(row, "recv_oct"),
      },
      {
        title: "To client",
        sort: "send_oct_details.rate",
        end: true,
        width: "7rem",
        phone: true,
        cell: (row) => flow(row, "send_oct"),
      },
      { title: "Client", width: "8rem", cell: (row) => visible(at(row, "client_properties.product") ?? "", "–") },
      { title: "For", sort: "connected_at", width: "6.5rem", cell: (row) => duration(Date.now() - row.connected_at) },
    ].filter(Boolean),
  });
  view.show(table.element);
  table.start();
}
