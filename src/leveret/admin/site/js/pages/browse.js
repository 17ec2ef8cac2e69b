// What waits in a queue or stream, looked at without taking anything: nobody's message is moved, marked or counted.

import { get, path } from "../api.js";
import { fill, h } from "../dom.js";
import { number, octets, time, visible } from "../format.js";
import { bind } from "../keys.js";
import { link } from "../router.js";
import { badge, button, facts, table } from "../view.js";

const PAGE = 50;
const STATES = [["ready", "Ready"], ["unacked", "Unacknowledged"], ["parked", "Parked dead letters"]];
const HEX_OCTETS = 16, HEX_LINES = 256;

export default async function browse(view) {
  const { vhost, name } = view.params, where = path`queues/${vhost}/${name}/messages`;
  view.title(`Messages of ${visible(name)}`, [["Queues", "#/queues"], [visible(name), link`queues/${vhost}/${name}`]]);
  const ask = { state: view.query.get("state") ?? "ready", offset: Number(view.query.get("offset") ?? 0) || 0, text: view.query.get("text") ?? "" };
  const list = h("ol", { class: "browsed" }), status = h("p", { class: "hint", role: "status" }), error = h("p", { class: "error", role: "alert", hidden: true });
  let shown = null, before = []; // the offsets of the pages before this one

  const load = async () => {
    error.hidden = true;
    try {
      shown = await get(where, { query: { ...ask, limit: PAGE, text: ask.text || null }, signal: view.signal });
    } catch (failure) {
      if (failure.name === "AbortError") return;
      if (failure.status === 404) return view.answered(failure);
      error.textContent = failure.message;
      error.hidden = false;
      return;
    }
    view.answered(null);
    view.setQuery({ state: ask.state === "ready" ? "" : ask.state, offset: ask.offset || "", text: ask.text });
    fill(list, shown.items.map((item) => message(item, view, where)));
    status.textContent = said(shown, ask.text);
    next.disabled = shown.next_offset === null;
    previous.disabled = before.length === 0;
    states.hidden = shown.type === "stream";
  };
  const from = (offset, past) => { ask.offset = offset; before = past; return load(); };
  const first = () => from(0, []), last = () => from(-PAGE, []);
  const forward = () => (shown?.next_offset === null || shown === null ? undefined : from(shown.next_offset, [...before, shown.offset]));
  const back = () => (before.length ? from(before.at(-1), before.slice(0, -1)) : undefined);
  const next = button("Next", forward), previous = button("Previous", back);

  const states = h("select", { "aria-label": "Which messages", onchange: (event) => { ask.state = event.target.value; first(); } },
    STATES.map(([value, label]) => h("option", { value, selected: value === ask.state }, label)));
  const text = h("input", { type: "search", "aria-label": "Search text", placeholder: "Text in key, headers or body", value: ask.text, spellcheck: "false", autocomplete: "off" });
  const at = h("input", { type: "number", step: "1", "aria-label": "First offset", title: "First offset; negative: from the end", value: String(ask.offset) });
  const tools = h("form", { class: "tools browse-tools", onsubmit: (event) => { event.preventDefault(); ask.text = text.value; from(Number(at.value) || 0, []); } },
    states, text, at, h("button", { type: "submit", class: "button primary" }, "Look"));
  view.show(h("section", { class: "panel" }, tools, error, status, list, h("div", { class: "tools" }, button("First", first), previous, next, button("Last", last), button("Reload", load))));
  bind("n", "the next messages", forward, view.signal);
  bind("b", "the messages before", back, view.signal);
  bind("r", "reload", load, view.signal);
  await load();
}

function said({ items, offset, scanned, next_offset: next, ready, unacked, state, type }, text) {
  const there = type === "stream" ? `${number(ready)} in the stream` : `${number(ready)} ready, ${number(unacked)} unacknowledged`;
  if (!items.length && next === null) return `${text ? "No message contains this text" : `No ${state} messages`}; ${there}.`;
  const looked = text ? `, ${number(scanned)} searched` : "";
  const more = next === null ? "" : items.length < PAGE ? "; continue the search with Next" : "";
  return `${number(items.length)} messages from offset ${number(items[0]?.offset ?? offset)}${looked}${more}; ${there}.`;
}

function message(item, view, where) {
  const { properties, held_by: held } = item, { headers, ...others } = properties;
  const body = h("div", { class: "body" });
  const element = h("details", { class: "browsed-one" },
    h("summary", null, h("span", { class: "offset" }, number(item.offset)), h("span", { class: "key" }, visible(item.exchange), " → ", visible(item.routing_key, "(no key)")),
      h("span", { class: "badges" }, item.redelivered && badge("redelivered", "warn"), held && badge("unacknowledged", "warn"), properties.message_id && badge(visible(properties.message_id), "accent")),
      h("span", { class: "size" }, octets(item.payload_bytes))),
    facts([
      held && ["Held by", `${visible(held.connection)}, channel ${held.channel}${held.consumer_tag ? `, consumer ${visible(held.consumer_tag)}` : ", by basic.get"}`],
      item.expires_ms && ["Expires", time(item.expires_ms)], item.arrived_ms && ["Arrived", time(item.arrived_ms)],
      ["Properties", table(shownTable(others))], ["Headers", table(shownTable(headers ?? {}))],
    ]), body);
  // a body is only drawn for who wants to see it
  element.addEventListener("toggle", () => { if (element.open && !body.childElementCount) fill(body, shownBody(item, view, where)); });
  return h("li", null, element);
}

const shownTable = (some) => Object.fromEntries(Object.entries(some).map(([name, value]) => [visible(name), typeof value === "string" ? visible(value) : value]));

function shownBody(item, view, where) {
  const data = bytesOf(item), isWhole = data.length >= item.payload_bytes, text = item.payload_encoding === "string" ? item.payload : null;
  const pre = h("pre", { class: "code", tabindex: "0", aria: { label: "Body" } });
  const ways = [["Text", () => text ?? new TextDecoder().decode(data)], ["JSON", () => JSON.stringify(JSON.parse(text), null, 2)], ["Hex", () => hex(data)]];
  const isJson = text !== null && parses(text), start = isJson ? "JSON" : text === null ? "Hex" : "Text";
  const buttons = ways.map(([name, made]) => button(name, () => choose(name, made), { small: true, disabled: name === "JSON" && !isJson }));
  const choose = (name, made) => {
    pre.textContent = made();
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.textContent === name));
  };
  choose(start, ways.find(([name]) => name === start)[1]);
  const failed = h("p", { class: "error", role: "alert", hidden: true });
  return [
    h("div", { class: "tools" }, h("span", { role: "group", "aria-label": "Show the body as" }, buttons), button("Download", () => download(item, view, where, failed), { small: true }),
      !isWhole && h("span", { class: "hint" }, `the first ${octets(data.length)} of ${octets(item.payload_bytes)}`)), failed, pre];
}

function bytesOf({ payload, payload_encoding: encoding }) {
  return encoding === "base64" ? Uint8Array.from(atob(payload), (each) => each.charCodeAt(0)) : new TextEncoder().encode(payload);
}

function parses(text) {
  try {
    return /^\s*[[{]/.test(text) && JSON.parse(text) !== undefined;
  } catch {
    return false;
  }
}

function hex(data) {
  const lines = [];
  for (let start = 0; start < data.length && lines.length < HEX_LINES; start += HEX_OCTETS) {
    const part = [...data.subarray(start, start + HEX_OCTETS)];
    const digits = part.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(3 * HEX_OCTETS - 1);
    lines.push(`${start.toString(16).padStart(8, "0")}  ${digits}  ${part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("")}`);
  }
  return lines.join("\n") + (data.length > HEX_OCTETS * HEX_LINES ? "\n…" : "");
}

async function download(item, view, where, failed) {
  failed.hidden = true;
  try {
    const whole = await get(`${where}/${encodeURIComponent(item.place)}`, { signal: view.signal });
    const address = URL.createObjectURL(new Blob([bytesOf({ payload: whole.payload, payload_encoding: "base64" })], { type: "application/octet-stream" }));
    h("a", { href: address, download: `message-${item.place}.bin` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } catch (error) {
    if (error.name === "AbortError") return;
    failed.textContent = error.message;
    failed.hidden = false;
  }
}
