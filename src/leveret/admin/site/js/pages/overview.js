// How the broker is: rates, depths, resources, alarms, and what it is.

import { get } from "../api.js";
import { Chart, Rates, historyOf } from "../chart.js";
import { fill, h } from "../dom.js";
import { duration, number, octets, rate, visible } from "../format.js";
import { Facts, badge, panel } from "../view.js";

const COUNTED = ["publish", "confirm", "deliver_get", "ack"];
const COUNTS = [
  ["queues", "Queues"],
  ["exchanges", "Exchanges"],
  ["connections", "Connections"],
  ["channels", "Channels"],
  ["consumers", "Consumers", null],
];
const NODE = [
  "name",
  "os_pid",
  "uptime",
  "processors",
  "mem_used",
  "mem_limit",
  "mem_alarm",
  "disk_free",
  "disk_free_limit",
  "disk_free_alarm",
  "disk_wait_alarm",
  "fd_used",
  "fd_total",
  "sockets_used",
  "db_dir",
  "context_switches",
].join(",");

export default function overview(view) {
  const rates = new Rates(),
    { isMonitor } = view.user;
  const speeds = historyOf("overview rates", COUNTED),
    depth = historyOf("overview depth", ["ready", "unacked"]);
  const people = historyOf("overview people", ["connections", "channels"]),
    memory = historyOf("overview memory", ["used"]),
    disk = historyOf("overview disk", ["free"]);
  const charts = [
    new Chart(view, {
      title: "Messages per second",
      history: speeds,
      format: rate,
      height: 230,
      series: [
        { label: "published", colour: "--line-1" },
        { label: "confirmed", colour: "--line-6" },
        { label: "delivered", colour: "--line-4" },
        { label: "acknowledged", colour: "--line-3" },
      ],
    }),
    new Chart(view, {
      title: "Queued messages",
      history: depth,
      format: number,
      height: 230,
      series: [
        { label: "ready", colour: "--line-1" },
        { label: "unacknowledged", colour: "--line-2" },
      ],
    }),
  ];
  const small = [
    new Chart(view, {
      title: "Clients",
      history: people,
      format: number,
      height: 120,
      series: [
        { label: "connections", colour: "--line-4" },
        { label: "channels", colour: "--line-3" },
      ],
    }),
  ];
  if (isMonitor) {
    small.push(
      new Chart(view, {
        title: "Memory",
        history: memory,
        format: octets,
        height: 120,
        series: [{ label: "used", colour: "--line-5" }],
      }),
      new Chart(view, {
        title: "Disk",
        history: disk,
        format: octets,
        height: 120,
        series: [{ label: "free", colour: "--line-6" }],
      }),
    );
  }
  const alarms = h("div", { class: "alarms", role: "alert" }),
    tiles = new Map(COUNTS.map(([name]) => [name, h("b", null, "–")]));
  const about = new Facts(),
    node = new Facts(),
    listeners = h("div", { class: "badges wrap" });

  view.poll(async (signal) => {
    const said = await get("overview", { signal });
    speeds.add(rates.of(COUNTED.map((name) => said.message_stats[name] ?? 0)));
    depth.add([said.queue_totals.messages_ready ?? 0, said.queue_totals.messages_unacknowledged ?? 0]);
    people.add([said.object_totals.connections, said.object_totals.channels]);
    for (const [name, place] of tiles) fill(place, number(said.object_totals[name]));
    about.update(broker(said));
    fill(
      listeners,
      (said.listeners ?? []).map((each) => badge(`${each.protocol} ${each.ip_address}:${each.port}`)),
    );
    if (isMonitor) {
      const [found] = await get("nodes", { query: { columns: NODE }, signal });
      memory.add([found.mem_used]);
      disk.add([found.disk_free]);
      node.update(machine(found));
      ring(alarms, found);
    }
    for (const chart of [...charts, ...small]) chart.update();
  });

  view.show(
    alarms,
    h(
      "ul",
      { class: "tiles" },
      COUNTS.map(([name, label, to = name]) =>
        h(
          "li",
          null,
          to
            ? h("a", { href: `#/${to}` }, tiles.get(name), h("span", null, label))
            : h("span", { class: "tile" }, tiles.get(name), h("span", null, label)),
        ),
      ),
    ),
    h(
      "div",
      { class: "columns" },
      charts.map((each) => each.element),
    ),
    h(
      "div",
      { class: "columns three" },
      small.map((each) => each.element),
    ),
    h(
      "div",
      { class: "columns" },
      panel("Broker", h("div", { class: "stack" }, about.element, isMonitor && listeners)),
      panel(
        "Node",
        isMonitor
          ? node.element
          : h(
              "p",
              { class: "hint" },
              "Node details require the monitoring or administrator tag. The figures above cover your virtual hosts.",
            ),
      ),
    ),
  );
}

function broker(said) {
  return [
    ["Version", said.leveret_version],
    ["Core", said.leveret_core],
    ["Reported to clients", `${said.product_name} ${said.product_version}`],
    ["Cluster name", visible(said.cluster_name)],
    ["Node", said.node],
    ["Published in total", number(said.message_stats.publish)],
    ["Delivered in total", number(said.message_stats.deliver_get)],
  ];
}

function machine(found) {
  return [
    ["Uptime", duration(found.uptime)],
    ["Memory", `${octets(found.mem_used)} of ${octets(found.mem_limit)}`],
    ["Disk free", `${octets(found.disk_free)}, alarm below ${octets(found.disk_free_limit)}`],
    ["Open files", `${number(found.fd_used)} of ${number(found.fd_total)}`],
    ["Sockets", number(found.sockets_used)],
    ["Processors", number(found.processors)],
    ["Process", found.os_pid],
    ["Data", found.db_dir],
  ];
}

function ring(place, found) {
  const rung = [
    found.mem_alarm && `Memory alarm: ${octets(found.mem_used)} used, the limit is ${octets(found.mem_limit)}.`,
    found.disk_free_alarm &&
      `Disk alarm: ${octets(found.disk_free)} free, the limit is ${octets(found.disk_free_limit)}.`,
    found.disk_wait_alarm && "Disk alarm: the disk has been too slow for more than 5 seconds.",
  ].filter(Boolean);
  const texts = rung.map((each) => `${each} Publishers are blocked until the alarm clears.`);
  if (place.textContent !== texts.join(""))
    fill(
      place,
      texts.map((each) => h("p", { class: "callout bad" }, each)),
    );
}
