// One connection: whose it is, what flows, its channels; and its end.

import { del, get, path } from "../api.js";
import { channelColumns } from "../channels.js";
import { Chart, Rates, historyOf } from "../chart.js";
import { notify } from "../dialog.js";
import { h } from "../dom.js";
import { ask } from "../form.js";
import { number, octets, time, visible } from "../format.js";
import { go, link } from "../router.js";
import { Local } from "../sources.js";
import { Table } from "../table.js";
import { Facts, button, panel, table } from "../view.js";
import { stateOf } from "./connections.js";

export default function connection(view) {
  const { name } = view.params,
    where = path`connections/${name}`;
  view.title(visible(name), [["Connections", "#/connections"]]);
  const speeds = historyOf(`connection ${name}`, ["in", "out"]),
    rates = new Rates(),
    about = new Facts(),
    client = new Facts();
  const chart = new Chart(view, {
    title: "Bytes per second",
    history: speeds,
    format: octets,
    series: [
      { label: "from the client", colour: "--line-1" },
      { label: "to the client", colour: "--line-4" },
    ],
  });
  const channels = new Table(view, {
    label: "Channels",
    filter: false,
    empty: "No channels.",
    columns: channelColumns(),
    href: (row) => link`channels/${row.name}`,
    source: new Local({ load: (signal) => get(`${where}/channels`, { signal }) }),
  });
  view.poll(async (signal) => {
    const found = await get(where, { signal });
    if (found.type !== "direct") {
      speeds.add(rates.of([found.recv_oct, found.send_oct]));
      chart.update();
    }
    about.update([
      ["State", stateOf(found)],
      ["User", visible(found.user)],
      ["Virtual host", visible(found.vhost)],
      ["Protocol", found.protocol],
      ["Authentication", found.auth_mechanism],
      ["Connected", time(found.connected_at)],
      ["Heartbeat", found.timeout ? `${found.timeout} s` : "none"],
      ["Maximum frame size", octets(found.frame_max)],
      ["Channels", number(found.channels)],
      ["Received", octets(found.recv_oct)],
      ["Sent", octets(found.send_oct)],
      ["Waiting to be sent", octets(found.send_pend)],
      ["TLS", found.ssl ? [found.ssl_protocol, found.ssl_cipher].filter(Boolean).join(", ") : "no"],
      found.peer_cert_subject && ["Certificate", visible(found.peer_cert_subject)],
    ]);
    const { capabilities, ...rest } = found.client_properties ?? {};
    client.update([
      ...Object.entries(rest).map(([key, value]) => [key, typeof value === "object" ? table(value) : visible(value)]),
      capabilities && ["capabilities", table(capabilities)],
    ]);
    await channels.refresh(signal);
  });
  const close = () =>
    ask(
      "Close this connection?",
      [{ name: "reason", label: "Reason, sent to the client", value: "Closed via management plugin" }],
      "Close connection",
      async ({ reason }) => {
        // what no header can hold is left out: they are Latin-1
        await view.deleteWith(() => del(where, { headers: { "x-reason": reason.replace(/[^\x20-\x7e]/g, "?") } }));
        notify("Connection closed.");
        go("#/connections");
      },
      {
        kind: "danger",
        text: `${visible(name)}. Its unacknowledged messages are requeued. The client may reconnect automatically.`,
      },
    );
  view.show(
    h("div", { class: "actions" }, button("Close the connection", close, { kind: "danger" })),
    h("div", { class: "columns" }, chart.element, panel("Connection", about.element)),
    panel("Channels", channels.element),
    panel("Client properties", client.element),
  );
}
