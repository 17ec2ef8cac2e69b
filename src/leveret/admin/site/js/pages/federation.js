// Federation: which exchanges come from other brokers over which links, how each link is, and who takes from here.

import { del, get, path, put } from "../api.js";
import { confirm, notify } from "../dialog.js";
import { fill, h, setText } from "../dom.js";
import { keep } from "../drawing/keep.js";
import { FederationMap, placeOf, stateBadge, stateOf, stateText } from "../drawing/links.js";
import { Speeds } from "../flow.js";
import { number, visible } from "../format.js";
import { link as address } from "../router.js";
import { Local } from "../sources.js";
import { Table } from "../table.js";
import { plainWords } from "../terms.js";
import { button, panel } from "../view.js";

const FIGURES = [
  ["lag", (link) => number(link.lag)], ["messages", (link) => number(link.messages)], ["per second", (link, speeds) => speeds.text(link, "messages")],
  ["unacknowledged", (link) => number(link.unacknowledged)], ["reconnects", (link) => number(link.reconnects)], ["looped, buried", (link) => `${number(link.looped)}, ${number(link.buried)}`],
];
const keyOf = ({ vhost, exchange, upstream, id, downstream, queue }) => JSON.stringify([vhost, exchange, upstream, id, downstream, queue]);
const CARDS_MAX = 60; // of more links those that are not well

export default async function federation(view) {
  const name = (await get("cluster-name", { signal: view.signal })).name;
  const state = { links: [], rows: [], broker: null };
  const speeds = new Speeds(keyOf);
  const map = new FederationMap(view, { chosen: (id) => choose(id), speeds });
  const empty = h("div", { class: "empty", hidden: true }, h("p", null, "This broker has no federated exchanges and no downstream brokers."),
    h("p", null, "Define an upstream as a parameter, and select exchanges with a policy: see ", h("code", null, "docs/reference/ctl.md"), ", Federation links."));
  const cards = h("ul", { class: "links" }), note = h("p", { class: "hint", role: "status" });
  const all = button("All links", () => choose(null), { kind: "small" });
  all.hidden = true;
  const links = panel("Links from upstream brokers", [note, cards], { actions: [all] });
  const table = downstreamTable(view, state, speeds);
  const below = panel("Downstream brokers", table.element);
  view.show(h("div", { class: "drawing-page" }, map.element), empty, links, below);

  const poll = view.poll(async (signal) => {
    const where = view.vhost === null ? ["federation-links", "federation-downstreams"] : [path`federation-links/${view.vhost}`, path`federation-downstreams/${view.vhost}`];
    [state.links, state.rows] = await Promise.all(where.map((each) => get(each, { signal })));
    draw();
    await table.refresh(signal);
  });

  function choose(id) {
    state.broker = id;
    draw();
    if (id?.startsWith("down:")) below.scrollIntoView({ block: "nearest" });
    else if (id) links.scrollIntoView({ block: "nearest" });
  }

  function draw() {
    map.show({ name, links: state.links, rows: state.rows });
    const isNothing = state.links.length === 0 && state.rows.length === 0;
    empty.hidden = !isNothing;
    map.element.hidden = isNothing;
    links.hidden = state.links.length === 0;
    below.hidden = state.rows.length === 0;
    const wanted = state.broker?.startsWith("up:") ? state.broker.slice(3) : null;
    const shown = state.links.filter((each) => wanted === null || (placeOf(each) || each.upstream) === wanted);
    all.hidden = wanted === null;
    const listed = shown.length <= CARDS_MAX ? shown : [...shown].sort((one, other) => stateOf(other).rank - stateOf(one).rank).slice(0, CARDS_MAX);
    setText(note, listed.length < shown.length ? `${number(listed.length)} of ${number(shown.length)} links, failed ones first. Select a broker in the picture to see its links.` : "");
    keep(cards, listed, keyOf, (each) => card(view, each, poll, speeds));
  }
}

function card(view, first, poll, speeds) {
  let link = first;
  const may = view.user.isPolicymaker, head = h("div", { class: "link-state" }), error = h("p", { class: "error" }), warning = h("p", { class: "warning" });
  const figures = FIGURES.map(([word, text]) => [h("dd"), word, text]);
  const act = async (does, text) => {
    await does();
    notify(text);
    await poll.now();
  };
  const where = () => path`federation-links/vhost/${link.vhost}/${link.id}/${link.node}/pause`;
  const buttons = {
    pause: button("Pause", () => confirm(`Pause the link from ${visible(link.upstream)}?`,
      [`Messages for ${visible(link.exchange)} wait in the upstream queue until the link is resumed, even if this broker restarts.`], "Pause",
      () => act(() => put(where()), "Link paused."), { kind: "primary" }), { kind: "small" }),
    resume: button("Resume", () => guarded(() => act(() => del(where()), "Link resumed.")), { kind: "small" }),
    restart: button("Restart", () => confirm(`Restart the link from ${visible(link.upstream)}?`, ["The link reconnects immediately. No messages are lost."], "Restart",
      () => act(() => del(path`federation-links/vhost/${link.vhost}/${link.id}/${link.node}/restart`), "Link restarted."), { kind: "primary" }), { kind: "small" }),
  };
  const title = h("h3"), about = h("p", { class: "hint" });
  const element = h("li", { class: "link-card" }, h("div", { class: "link-title" }, title, about), head,
    h("dl", { class: "figures" }, figures.map(([dd, word]) => h("div", null, h("dt", null, word), dd))),
    error, warning, h("div", { class: "tools" }, Object.values(buttons)));

  function update(now) {
    link = now;
    fill(title, h("a", { href: address`exchanges/${link.vhost}/${link.exchange}` }, visible(link.exchange)), " ← ", visible(link.upstream_exchange || link.exchange), " at ", visible(link.upstream || "–"));
    setText(about, [link.uri, `virtual host ${visible(link.vhost)}`, link.policy && `policy ${visible(link.policy)}`, link.max_hops && `max-hops ${link.max_hops}`].filter(Boolean).join(" · "));
    fill(head, stateBadge(link), h("span", { class: "hint" }, stateText(link)));
    for (const [dd, , text] of figures) setText(dd, text(link, speeds));
    setText(error, plainWords(link.error ?? ""));
    setText(warning, plainWords(link.warning ?? ""));
    error.hidden = !link.error;
    warning.hidden = !link.warning;
    element.className = `link-card ${stateOf(link).kind}`;
    buttons.pause.hidden = !may || !link.id || link.status === "paused";
    buttons.resume.hidden = !may || link.status !== "paused";
    buttons.restart.hidden = !link.id || link.status === "paused";
  }
  return { element, update };
}

async function guarded(does) {
  try {
    await does();
  } catch (error) {
    notify(error.message, "bad");
  }
}

function downstreamTable(view, state, speeds) {
  const table = new Table(view, {
    label: "Upstream queues", filter: false, source: new Local({ load: () => state.rows, texts: (row) => [row.downstream, row.exchange] }), sort: "downstream",
    href: (row) => address`queues/${row.vhost}/${row.queue}`, empty: "No downstream brokers.",
    columns: [
      { title: "Downstream", sort: "downstream", main: true, cell: (row) => visible(row.downstream) },
      { title: "Exchange", sort: "exchange", cell: (row) => visible(row.exchange), phone: true },
      view.vhost === null && { title: "Virtual host", sort: "vhost", width: "8rem", cell: (row) => visible(row.vhost) },
      { title: "State", sort: "status", width: "9rem", phone: true, cell: (row) => stateBadge(row) },
      { title: "Waiting", sort: "messages", end: true, width: "7rem", phone: true, cell: (row) => number(row.messages) },
      { title: "Unacked", sort: "unacknowledged", end: true, width: "7rem", cell: (row) => number(row.unacknowledged) },
      { title: "Out /s", end: true, width: "6rem", cell: (row) => speeds.text(row, "delivered") },
    ].filter(Boolean),
  });
  return table;
}
