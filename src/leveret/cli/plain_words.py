"""Error texts for people: replaces the Erlang terms that RabbitMQ's error texts (and leveret's) contain.

site/js/terms.js does the same for the web page.
"""

from __future__ import annotations

import re
from typing import Final

# "{}" stands for the value
TERMS: Final[dict[str, str]] = {
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
    "value_zero": "it must be greater than 0, but is {}",
}
TYPES: Final[dict[str, str]] = {
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
    "void": "empty",
}

# {word,value}; the value is quoted, a term itself, or neither
_TERM: Final = r'\{([a-z_]+),((?:"(?:[^"\\]|\\.)*"|[^{}"])*|\{[^{}]*\})\}'
_QUOTED: Final = r'(?:"(?:[^"\\]|\\.)*"|\[\])'
_OF_URI: Final = re.compile(rf"\{{\{{invalid_(?:amqp_params|ssl)_parameter,([a-z_]+),.*?,{_TERM}\}},{_QUOTED}\}}")
_WITH_URI: Final = re.compile(rf"\{{{_TERM},{_QUOTED}\}}")
_ALONE: Final = re.compile(_TERM)


def plain_words(text: str) -> str:
    """Replace the Erlang terms in an error text by words."""
    text = _OF_URI.sub(lambda found: f"parameter {found[1]}: {_said(found[2], found[3])}", text)
    text = _WITH_URI.sub(lambda found: _said(found[1], found[2]) or found[0], text)
    text = _ALONE.sub(lambda found: _said(found[1], found[2]) or found[0], text)
    text = re.sub(r"\{:[a-z_]+, '([^']*)'\}", r"\1", text)
    text = re.sub(r'"expected integer, got ([a-z]+)"', lambda found: _whole_number(found[1]), text)
    text = re.sub(r": ([a-z_]+)$", lambda found: f": {TERMS.get(found[1], found[1])}", text)
    return re.sub(r" of queue type rabbit_([a-z]+)_queue$", r": not supported by \1 queues", text)


def _whole_number(kind: str) -> str:
    return f"it must be a whole number, not {TYPES.get(kind, kind)}"


def _said(word: str, value: str) -> str:
    """Return a term's meaning; "" if the term is unknown."""
    if word == "unable_to_parse_uri" and value in TERMS:
        return TERMS[value]
    shown = re.sub(r'<<("(?:[^"\\]|\\.)*")>>', r"\1", re.sub(r"^\{[a-z]+,(.*)\}$", r"\1", value))
    shown = ", ".join(TYPES.get(each, each) for each in shown.split(","))
    if word in TERMS:
        return TERMS[word].replace("{}", shown)
    return f"{word.replace('_', ' ')}: {shown}" if "_" in word else ""
