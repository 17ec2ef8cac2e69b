// Where a message would go and why, and why not elsewhere: asked of the broker's own matchers, without publishing anything.

import { get, path, post } from "../api.js";
import { fill, h } from "../dom.js";
import { Form } from "../form.js";
import { number, visible } from "../format.js";
import { bind } from "../keys.js";
import { link } from "../router.js";
import { plainWords } from "../terms.js";
import { badge, panel } from "../view.js";

// verdict -> [sign, kind of badge, words]
const VERDICTS = {
  takes: ["✓", "good", "receives it"],
  refuses: ["!", "bad", "rejects it"],
  perhaps: ["?", "warn", "may receive it"],
  cut: ["↺", "warn", "is skipped"],
};
const DEATHS = { expired: "When it expires", maxlen: "Because the queue is full", rejected: "When a consumer rejects it" };
const TEXTS = ["exchange", "routing_key", "headers", "expiration", "destination", "user"];

export default async function explain(view) {
  const vhost = view.params.vhost ?? view.vhost ?? "/", said = (name) => view.query.get(name) ?? "";
  view.title("Explain a route");
  const form = new Form([
    { name: "exchange", label: "Exchange", value: said("exchange"), hint: "Empty: the default exchange, whose routing keys are names of queues.", autofocus: true },
    { name: "routing_key", label: "Routing key", value: said("routing_key") },
    { name: "headers", label: "Headers", kind: "json", value: said("headers"), hint: 'A JSON object, as {"colour": "red"}; x-delay, CC and BCC count, too.' },
    { name: "expiration", label: "Expiration, in ms", value: said("expiration"), inputmode: "numeric" },
    { name: "destination", label: "Why (not) this queue?", value: said("destination"), hint: "Shows only what concerns this queue." },
    view.user.isAdministrator && { name: "user", label: "Published by", value: said("user"), hint: "User whose permissions are checked; empty: no check." },
    { name: "payload_bytes", label: "Size of the body, in bytes", kind: "number", min: "0", value: said("payload_bytes") },
    { name: "mandatory", label: "Mandatory: returned if it reaches no queue", kind: "check", value: said("mandatory") },
  ]);
  const answer = h("div", { class: "explained", aria: { live: "polite" } });
  const error = h("p", { class: "error", role: "alert", hidden: true });
  const ask = async () => {
    error.hidden = true;
    try {
      const { headers, expiration, ...given } = form.values();
      const asked = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== false));
      const properties = { ...(Object.keys(headers).length && { headers }), ...(expiration && { expiration }) };
      view.setQuery(Object.fromEntries([...TEXTS.map((name) => [name, form.field(name)?.value.trim() ?? ""]), ["payload_bytes", asked.payload_bytes], ["mandatory", asked.mandatory && "1"]]));
      fill(answer, told(await post(path`explain/${vhost}`, { exchange: "", ...asked, properties, limit: 50 }, { signal: view.signal }), vhost));
    } catch (failure) {
      if (failure.name === "AbortError") return;
      error.textContent = failure.message;
      error.hidden = false;
    }
  };
  const element = h("form", { class: "explain-form", novalidate: true, onsubmit: (event) => { event.preventDefault(); ask(); } },
    form.element, error, h("div", { class: "tools" }, h("button", { type: "submit", class: "button primary" }, "Explain")));
  view.show(h("div", { class: "explain" }, panel(`A message in ${visible(vhost)}`, element), panel("Route", answer)));
  bind("x", "explain again", ask, view.signal);
  if (said("destination") && !view.query.has("exchange")) form.field("exchange").value = await usualSource(vhost, said("destination"), view.signal);
  if (["exchange", "routing_key", "destination"].some((name) => view.query.has(name))) await ask();
  else fill(answer, h("p", { class: "hint" }, "Nothing is published: the answer shows what the broker would do now."));
}

/** The exchange that a queue is bound to, so that a question about it begins somewhere. */
async function usualSource(vhost, queue, signal) {
  try {
    const bindings = await get(path`queues/${vhost}/${queue}/bindings`, { query: { columns: "source" }, signal });
    return bindings.find(({ source }) => source !== "")?.source ?? "";
  } catch {
    return ""; // there is no such queue, which the answer says
  }
}

/** The answer of explain_route, as nodes. */
function told(answer, vhost) {
  const { route, destination, refusals } = answer, isGood = route?.outcome === "routed" && !refusals.length && !route.verdicts.refuses;
  return [
    h("p", { class: `callout summary ${isGood ? "" : "bad"}` }, sign(isGood ? "✓" : "!"), visible(plainWords(answer.summary))),
    refusals.length > 0 && h("ul", { class: "refusals" }, refusals.map((text) => h("li", null, sign("✗"), visible(plainWords(text))))),
    destination && asked(destination, vhost),
    route && way(route, vhost),
    answer.is_truncated && h("p", { class: "hint" }, "The answer is truncated."),
  ];
}

function asked(destination, vhost) {
  const name = visible(destination.queue);
  if (!destination.exists) return h("p", { class: "callout bad" }, sign("✗"), `Queue ${name} does not exist.`);
  const rows = destination.bindings.map((row) => h("li", null, mark(row.matched), h("span", { class: "where" }, named("exchange", row.source, vhost), ` with key ${quoted(row.routing_key)}: `), visible(row.reason)));
  return h("section", { class: "asked", aria: { label: `Queue ${name}` } }, h("h3", null, sign(destination.reached ? "✓" : "✗"), `${name}: ${destination.reason}`), h("ul", null, rows),
    destination.binding_count > rows.length && h("p", { class: "hint" }, `… and ${number(destination.binding_count - rows.length)} more bindings`));
}

function way(route, vhost) {
  const more = route.queue_count - route.queues.length;
  return h("ul", { class: "way" }, route.exchanges.map((step) => h("li", null, exchange(step, vhost))), route.queues.map((row) => h("li", null, queue(row, vhost))),
    more > 0 && h("li", { class: "hint" }, `… and ${number(more)} more queues`),
    route.exchange_count > route.exchanges.length && h("li", { class: "hint" }, `… and ${number(route.exchange_count - route.exchanges.length)} more exchanges`));
}

function exchange(step, vhost) {
  const { bindings, alternate } = step;
  return h("details", { class: "step", open: true },
    h("summary", null, sign("⇄"), "exchange ", named("exchange", step.exchange, vhost), " ", badge(step.type), step.internal && badge("internal"), !step.is_certain && badge("only if random routing selects it", "warn"),
      bindings && h("span", { class: "hint" }, ` ${number(bindings.matched)} of ${number(bindings.total)} bindings match`)),
    step.reached.map((text) => h("p", { class: "hint" }, `because ${visible(text)}`)),
    step.note && h("p", { class: "held" }, sign("◷"), step.note),
    step.next && way(step.next, vhost),
    bindings && h("ul", { class: "bindings" }, bindings.shown.map((row) => binding(row, vhost))),
    alternate && h("p", null, sign(alternate.taken ? "✓" : "–"), "alternate exchange ", named("exchange", alternate.exchange, vhost), `: ${alternate.taken ? "taken" : "not taken"}, ${visible(alternate.reason)}`));
}

function binding(row, vhost) {
  return h("li", { class: row.matched ? "yes" : "no" }, mark(row.matched),
    row.destination !== undefined && h("span", { class: "where" }, "to ", row.destination_type, " ", named(row.destination_type, row.destination, vhost), `, key ${quoted(row.routing_key)}: `),
    visible(row.reason), row.note && h("p", { class: "hint" }, row.note));
}

function queue(row, vhost) {
  const [icon, kind, words] = VERDICTS[row.verdict], dead = row.dead_letter;
  return h("details", { class: "step", open: true },
    h("summary", null, sign(icon), "queue ", named("queue", row.queue, vhost), " ", badge(words, kind), row.type !== "classic" && badge(row.type)),
    row.reached.map((text) => h("p", { class: "hint" }, `by ${visible(text)}`)),
    row.notes.map((text) => h("p", null, visible(text))),
    dead && h("div", { class: "dead" }, dead.delay && h("p", { class: "held" }, sign("◷"), visible(dead.delay)),
      h("p", null, `${DEATHS[dead.reason]}: to ${visible(dead.to)}`), dead.trouble && h("p", { class: "error" }, sign("!"), visible(dead.trouble)), dead.next && way(dead.next, vhost)));
}

const sign = (text) => h("span", { class: "sign", "aria-hidden": "true" }, text);
const mark = (isMatch) => [sign(isMatch ? "✓" : "✗"), h("b", { class: isMatch ? "good" : "muted" }, isMatch ? "matches " : "does not match ")];
const quoted = (key) => (key === "" ? "(empty)" : visible(key));

function named(kind, name, vhost) {
  const where = kind === "queue" ? link`queues/${vhost}/${name}` : link`exchanges/${vhost}/${name === "" ? "amq.default" : name}`;
  return h("a", { href: where }, visible(name));
}
