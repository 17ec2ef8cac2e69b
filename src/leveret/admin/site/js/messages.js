// Look at messages of a queue, and publish one, over the API.

import { exchangeName, path, post } from "./api.js";
import { notify, show } from "./dialog.js";
import { h } from "./dom.js";
import { ask, Form } from "./form.js";
import { number, octets, visible } from "./format.js";
import { badge, facts, table } from "./view.js";

const PAYLOAD_OCTETS = 50_000;
const COUNT_MAX = 1000;
// what is done with messages that were looked at: value -> [label, what that means, whether they are gone]
const ACK_MODES = {
  ack_requeue_true: [
    "Requeue",
    "Messages stay in the queue and are marked as redelivered. Consumers may receive them a little later.",
    false,
  ],
  ack_requeue_false: ["Acknowledge (remove)", "Messages are acknowledged and removed from the queue.", true],
  reject_requeue_true: [
    "Reject and requeue",
    "Messages stay in the queue and are marked as redelivered. A quorum queue counts a delivery.",
    false,
  ],
  reject_requeue_false: [
    "Reject (remove)",
    "Messages are removed from the queue, or dead-lettered if it has a dead letter exchange.",
    true,
  ],
};

/** A dialog that gets messages of a queue; changed() is called when they have been taken out or put back. */
export function getMessages(vhost, queue, changed = () => {}) {
  const form = new Form([
    {
      name: "ackmode",
      label: "Afterwards",
      kind: "choice",
      options: Object.entries(ACK_MODES).map(([value, [label]]) => [value, label]),
    },
    { name: "count", label: "How many", kind: "number", value: 1, min: 1, max: COUNT_MAX, required: true },
    {
      name: "encoding",
      label: "Payload as",
      kind: "choice",
      options: [
        ["auto", "text, if it is UTF-8"],
        ["base64", "base64"],
      ],
    },
  ]);
  const meaning = h("p", { class: "callout", role: "status" }),
    shown = h("div", { class: "messages", "aria-live": "polite" });
  const say = () => {
    const [, text, isGone] = ACK_MODES[form.field("ackmode").value];
    meaning.textContent = text;
    meaning.classList.toggle("bad", isGone);
  };
  form.field("ackmode").addEventListener("change", say);
  say();
  const fetchThem = async () => {
    const found = await post(path`queues/${vhost}/${queue}/get`, { ...form.values(), truncate: PAYLOAD_OCTETS });
    shown.replaceChildren(
      ...(found.length
        ? found.map(message)
        : [h("p", { class: "empty" }, "The queue is empty, or consumers hold all of its messages.")]),
    );
    changed();
    return false;
  };
  return show(
    `Messages of ${visible(queue)}`,
    [form.element, meaning, shown],
    [
      { label: "Close", kind: "quiet" },
      { label: "Get messages", kind: "primary", does: fetchThem },
    ],
    { wide: true },
  );
}

/** One message as the API gives it. */
export function message(found) {
  const isCut = found.payload_bytes > PAYLOAD_OCTETS && found.payload_encoding === "string";
  return h(
    "article",
    { class: "message" },
    h(
      "header",
      null,
      h("b", null, visible(found.routing_key, "(no routing key)")),
      badge(found.exchange === "" ? "default exchange" : visible(found.exchange)),
      found.redelivered && badge("redelivered", "warn"),
      badge(octets(found.payload_bytes)),
      found.message_count !== undefined && badge(`${number(found.message_count)} remaining`),
    ),
    facts(
      Object.entries(found.properties ?? {}).map(([name, value]) => [
        name,
        typeof value === "object" ? table(value) : visible(value, "empty"),
      ]),
    ),
    h("pre", { class: "payload", tabindex: "0", "aria-label": "Payload" }, found.payload),
    found.payload_encoding === "base64" && h("p", { class: "hint" }, "The payload is shown as base64."),
    isCut && h("p", { class: "hint" }, `Only the first ${octets(PAYLOAD_OCTETS)} are shown.`),
  );
}

/** A dialog that publishes one message to an exchange. */
export function publish(vhost, exchange, routingKey = "", done = () => {}) {
  const fields = [
    { name: "routing_key", label: "Routing key", value: routingKey },
    { name: "payload", label: "Payload", kind: "lines", class: "code" },
    {
      name: "payload_encoding",
      label: "The payload is",
      kind: "choice",
      options: [
        ["string", "text"],
        ["base64", "base64"],
      ],
    },
    {
      name: "delivery_mode",
      label: "Persistent: written to disk if the queue is durable",
      kind: "check",
      value: true,
    },
    { name: "headers", label: "Headers", kind: "json", hint: 'A JSON object, as {"attempt": 1}' },
    {
      name: "properties",
      label: "Properties",
      kind: "json",
      hint: 'A JSON object, as {"content_type": "application/json", "expiration": "60000"}',
    },
  ];
  return ask(
    `Publish to ${exchange === "" ? "the default exchange" : visible(exchange)}`,
    fields,
    "Publish",
    async ({ headers, properties, delivery_mode, ...said }) => {
      const body = {
        ...said,
        properties: {
          delivery_mode: delivery_mode ? 2 : 1,
          ...(Object.keys(headers).length ? { headers } : {}),
          ...properties,
        },
      };
      const { routed } = await post(path`exchanges/${vhost}/${exchangeName(exchange)}/publish`, body);
      if (routed) notify("Published and routed.");
      else notify("Published but not routed: no binding matches this routing key.", "warn");
      done();
    },
    { kind: "primary", wide: true },
  );
}
