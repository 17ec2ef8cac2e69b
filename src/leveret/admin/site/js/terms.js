// Refusals hold terms of Erlang, as RabbitMQ's do; people read them in words. The table is that of cli/plain_words.py.

export const TERMS = {
  "delivery_mode_unknown": "the delivery mode must be 1 or 2, not {}",
  "invalid_dlx_strategy": "it must be at-most-once or at-least-once",
  "invalid_entity": "a part of the URI is not percent-encoded correctly: {}",
  "invalid_max_age": "it must be a number with a unit (Y, M, D, h, m or s), such as 7D",
  "invalid_overflow": "it must be drop-head, reject-publish or reject-publish-dlx",
  "invalid_queue_locator_arg": "it must be client-local, balanced, random or least-leaders",
  "invalid_stream_offset_arg": "it must be an offset, a time, an interval such as 1h, or first, last or next, not {}",
  "invalid_vhost": "the URI names no virtual host: {}",
  "key_missing": "{} is missing",
  "leftover_string": "it must be a whole number: {} is not allowed",
  "max_value_exceeded": "{} is too large",
  "no_integer": "it must be a whole number",
  "no_scheme": "it must begin with amqp:// or amqps://",
  "not_an_integer": "{} is not a whole number",
  "port_out_of_range": "{} is not a port",
  "require_boolean": "{} is neither true nor false",
  "routing_key_but_no_dlx_defined": "it requires x-dead-letter-exchange",
  "unable_to_parse_uri": "invalid URI: {}",
  "unacceptable_length": "invalid length: {}",
  "unacceptable_type": "its value must not be {}",
  "unacceptable_type_in_header": "a header has a value of the wrong type: {}",
  "unexpected_uri_scheme": "it must begin with amqp:// or amqps://, not with {}",
  "value_negative": "it must not be negative, but is {}",
  "value_too_large": "{} is too large",
  "value_zero": "it must be greater than 0, but is {}"
};

export const TYPES = {
  "array": "a list",
  "binary": "bytes",
  "bool": "true or false",
  "byte": "a number",
  "decimal": "a decimal number",
  "double": "a number with a fraction",
  "float": "a number with a fraction",
  "long": "a number",
  "longstr": "a string",
  "short": "a number",
  "signedint": "a number",
  "table": "an object",
  "timestamp": "a time",
  "unsignedbyte": "a number",
  "unsignedint": "a number",
  "unsignedshort": "a number",
  "void": "empty"
};

// {word,value}: a value is in quotes, a term of its own, or neither
const TERM = String.raw`\{([a-z_]+),((?:"(?:[^"\\]|\\.)*"|[^{}"])*|\{[^{}]*\})\}`;
const QUOTED = String.raw`(?:"(?:[^"\\]|\\.)*"|\[\])`;
const OF_URI = new RegExp(String.raw`\{\{invalid_(?:amqp_params|ssl)_parameter,([a-z_]+),.*?,${TERM}\},${QUOTED}\}`, "g");
const WITH_URI = new RegExp(String.raw`\{${TERM},${QUOTED}\}`, "g");
const ALONE = new RegExp(TERM, "g");

/** A refusal in words. */
export function plainWords(text) {
  return text
    .replace(OF_URI, (_, parameter, word, value) => `parameter ${parameter}: ${said(word, value)}`)
    .replace(WITH_URI, (whole, word, value) => said(word, value) ?? whole)
    .replace(ALONE, (whole, word, value) => said(word, value) ?? whole)
    .replace(/\{:[a-z_]+, '([^']*)'\}/g, "$1")
    .replace(/"expected integer, got ([a-z]+)"/g, (_, type) => `it must be a whole number, not ${TYPES[type] ?? type}`)
    .replace(/: ([a-z_]+)$/, (whole, word) => (Object.hasOwn(TERMS, word) ? `: ${TERMS[word]}` : whole))
    .replace(/ of queue type rabbit_([a-z]+)_queue$/, ": not supported by $1 queues");
}

function said(word, value) {
  if (word === "unable_to_parse_uri" && Object.hasOwn(TERMS, value)) return TERMS[value];
  const shown = value
    .replace(/^\{[a-z]+,(.*)\}$/, "$1")
    .replace(/<<("(?:[^"\\]|\\.)*")>>/g, "$1")
    .split(",")
    .map((each) => (Object.hasOwn(TYPES, each) ? TYPES[each] : each))
    .join(", ");
  if (Object.hasOwn(TERMS, word)) return TERMS[word].replace("{}", () => shown);
  return word.includes("_") ? `${word.replaceAll("_", " ")}: ${shown}` : null;
}
