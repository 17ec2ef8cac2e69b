// One stream: which offsets are where, its files, and how far its readers are.

import { ApiError, get, path } from "../api.js";
import { fill, h } from "../dom.js";
import { range } from "../drawing/ranges.js";
import { number, octets, time, visible } from "../format.js";
import { link } from "../router.js";
import { facts, panel } from "../view.js";
import { keeps } from "./streams.js";

const FILES_S = 15; // hashes are found out by reading: not as often
const FILES_SHOWN = 200;
const NAMES_SHOWN = 200;

export default function stream(view) {
  const { vhost, stream: name } = view.params, where = path`streams/${vhost}/${name}`;
  view.title(visible(name), [["Streams", link`streams`]]);
  const about = h("div"), offsets = h("div", { class: "ranges" }), readers = h("div", { class: "ranges" }), names = h("div", { class: "ranges" }), files = h("div");
  const named = panel("Consumers by name", names);
  view.show(panel("Contents", h("div", { class: "ranges" }, about, offsets), { actions: [h("a", { href: link`queues/${vhost}/${name}` }, "Queue view")] }),
    panel("Consumers", readers), named, panel("Files", files));
  let found = null;
  view.poll(async (signal) => {
    const tracked = await get(`${where}/tracking`, { signal });
    found = await get(where, { signal });
    show(found, tracked);
  });
  let said = "";
  view.poll(async (signal) => {
    try {
      const listed = await get(`${where}/segments`, { signal });
      if (JSON.stringify(listed) !== said) fill(files, fileTable(listed));
      said = JSON.stringify(listed);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 403) throw error;
      fill(files, h("p", { class: "hint" }, "Seeing the files requires permission to read this stream."));
    }
  }, { everyS: FILES_S });

  function show(row, tracked) {
    fill(about, facts([
      ["Messages", number(row.messages)], ["Size", octets(row.octets)], ["Next offset", number(row.next_offset)], ["Committed (on disk)", number(row.committed_offset)],
      ["Sealed in Parquet up to", row.sealed_offset === null ? "no tables" : number(row.sealed_offset)], ["Keeps", keeps(row)], ["Oldest", time(row.oldest_ms)], ["Newest", time(row.newest_ms)],
      ["Virtual host", visible(row.vhost)], row.policy && ["Policy", visible(row.policy)], row.write_errors > 0 && ["Write errors", h("span", { class: "error" }, number(row.write_errors))],
    ]));
    fill(offsets, offsetBars(row));
    fill(readers, row.consumer_details.length ? row.consumer_details.map((each) => reader(each, row)) : h("p", { class: "hint" }, "No consumers."));
    named.hidden = tracked.length === 0;
    const shown = tracked.slice(0, NAMES_SHOWN), left = tracked.length - shown.length;
    fill(names, shown.map((each) => tracking(each, row)), left > 0 && h("p", { class: "hint" }, `and ${number(left)} more: leveret ctl list_stream_tracking lists all`));
  }
}

function offsetBars(row) {
  const { first_offset: first, next_offset: next, committed_offset: committed, sealed_offset: sealed, retention_offset: retained } = row;
  const bar = (label, from, until, kind) => range({
    name: label, note: until > from ? `${number(from)} – ${number(until - 1)}` : "none", parts: [{ from, until, kind }], low: first, high: next,
    end: number(Math.max(0, until - from)), label: `${label}: ${number(Math.max(0, until - from))} of ${number(next - first)} messages`,
  });
  return [
    h("div", { class: "range" }, h("span"), h("div", { class: "range-scale" }, h("span", null, `offset ${number(first)}`), h("span", null, `${number(next)}`)), h("span")),
    bar("Committed", first, committed, "native"), sealed !== null && bar("In tables (Parquet)", first, Math.max(first, sealed), "sealed"),
    bar("Only in native files or memory", Math.max(first, sealed ?? first), next, "tail"), retained > first && bar("Retained only by leases", first, retained, "gone"),
  ];
}

function reader(consumer, row) {
  const { first_offset: first, committed_offset: committed } = row, at = Math.max(first, consumer.next_offset), channel = consumer.channel_details?.name ?? "";
  return range({
    name: visible(consumer.consumer_tag), note: visible(channel), low: first, high: committed, end: consumer.lag === 0 ? "up to date" : `lag ${number(consumer.lag)}`,
    parts: [{ from: first, until: at, kind: "native", title: "read" }, { from: at, until: committed, kind: "behind", title: "not read yet" }],
    label: `${visible(consumer.consumer_tag)} continues at offset ${number(consumer.next_offset)}, lag ${number(consumer.lag)}`,
  });
}

function tracking({ type, name, tracking_value: value, lag, is_consuming: isConsuming }, row) {
  const { first_offset: first, committed_offset: committed } = row;
  if (type === "writer") return range({ name: visible(name), note: "publisher", parts: [], low: 0, high: 1, end: `number ${number(value)}`, label: `publisher ${visible(name)}, last number ${number(value)}` });
  const at = Math.max(first, Math.min(committed, committed - (lag ?? 0)));
  return range({
    name: visible(name), note: isConsuming ? "consuming now" : "not consuming", low: first, high: committed, end: lag === 0 ? "up to date" : `lag ${number(lag)}`,
    parts: [{ from: first, until: at, kind: "native", title: "read" }, { from: at, until: committed, kind: "behind", title: "not read yet" }],
    label: `consumer ${visible(name)}, offset ${number(value)}, lag ${number(lag)}`,
  });
}

function fileTable({ segments, unsealed, tail }) {
  const shown = segments.slice(-FILES_SHOWN), gap = (some) => (Array.isArray(some) ? some : some ? [some] : []);
  const word = (each) => (each.first_offset === undefined ? JSON.stringify(each) : `${number(each.first_offset)} – ${number(each.last_offset)}`);
  const notes = [unsealed && `Not in a table yet: ${gap(unsealed).map(word).join(", ")}.`, tail && `Not in a file yet: ${gap(tail).map(word).join(", ")}.`, segments.length > shown.length && `The last ${number(shown.length)} of ${number(segments.length)} files.`].filter(Boolean);
  if (!segments.length) return h("p", { class: "hint" }, notes.join(" ") || "No files yet.");
  return [h("div", { class: "plain-scroll" }, h("table", { class: "plain" }, h("thead", null, h("tr", null, [["Kind"], ["File"], ["Offsets"], ["Arrived"], ["Size", "end"]].map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
    h("tbody", null, shown.reverse().map((each) => h("tr", null, h("td", null, each.kind === "table" ? "Parquet" : "native"), h("td", null, h("code", null, each.file)), h("td", null, word(each)),
      h("td", null, each.first_ms === null ? "–" : `${time(each.first_ms)} – ${time(each.last_ms)}`), h("td", { class: "end" }, octets(each.size_bytes))))))), h("p", { class: "hint" }, notes.join(" "))];
}
