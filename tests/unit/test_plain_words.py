"""Error texts in plain words, on the command line and on the web page; meaningless arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import leveret
from leveret.broker.exchange_types.exchange_arguments import EXCHANGE_ARGUMENT_NAMES
from leveret.broker.queues.queue_arguments import NAMES
from leveret.cli.plain_words import TERMS, TYPES, plain_words
from leveret.wire import grammar

from .support import Bench

SOURCES = Path(leveret.__file__).parent
SCRIPTS = SOURCES / "admin" / "site" / "js"
RAISED = re.compile(r"\{\{([a-z]+_[a-z_]+),|\"\{([a-z]+_[a-z_]+),")
"""Erlang's terms in f-strings and plain strings."""
OF_FRAMES = {"frame_too_large", "invalid_frame_end_marker"}
"""What breaks a connection: no person asked for it, and the log has it as RabbitMQ's has."""
WITH_MORE = {"invalid_amqp_params_parameter", "invalid_ssl_parameter"}
"""Terms that hold another one."""


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("arg 'x-max-length': {value_negative,-1}", "arg 'x-max-length': it must not be negative, but is -1"),
        ("arg 'x': \"expected integer, got longstr\"", "arg 'x': it must be a whole number, not a string"),
        ("arg 'x': {unacceptable_type,table}", "arg 'x': its value must not be an object"),
        ("arg 'x-overflow': invalid_overflow", f"arg 'x-overflow': {TERMS['invalid_overflow']}"),
        ("expiration '1.5': {leftover_string,\".5\"}",
         "expiration '1.5': it must be a whole number: \".5\" is not allowed"),
        ("\"http://x\" not a valid URI: {{unexpected_uri_scheme,\"http\"},\"http://x\"}",
         "\"http://x\" not a valid URI: it must begin with amqp:// or amqps://, not with \"http\""),
        ('"x" not a valid URI: {{unable_to_parse_uri,no_scheme},"x"}',
         '"x" not a valid URI: it must begin with amqp:// or amqps://'),
        ('"amqp://h?heartbeat=x": {{invalid_amqp_params_parameter,heartbeat,"x",[{"heartbeat","x"}],'
         '{not_an_integer,"x"}},"amqp://h?heartbeat=x"}',
         '"amqp://h?heartbeat=x": parameter heartbeat: "x" is not a whole number'),
        ("'o': {invalid_stream_offset_arg,{longstr,<<\"foo\">>}}",
         f"'o': {TERMS['invalid_stream_offset_arg'].format(chr(34) + 'foo' + chr(34))}"),
        ("arg 'x-max-age' for queue 'q' of queue type rabbit_classic_queue",
         "arg 'x-max-age' for queue 'q': not supported by classic queues"),
        ("{:reference_already_exists, 'there is already a queue named q'}", "there is already a queue named q"),
        ('a body {"key_one": 1}, {a,1} and {}', 'a body {"key_one": 1}, {a,1} and {}'),
    ],
)  # fmt: skip
def test_refusals_in_words(told: str, said: str) -> None:
    assert plain_words(told) == said
    assert plain_words(said) == said


def test_every_term_has_words() -> None:
    raised = {
        word
        for room in ("broker", "session", "control")
        for file in (SOURCES / room).rglob("*.py")
        for found in RAISED.findall(file.read_text())
        for word in found
        if word
    }
    assert {"value_negative", "unacceptable_type", "unable_to_parse_uri"} <= raised
    assert raised - OF_FRAMES - WITH_MORE - set(TERMS) == set()


def table(script: str, name: str) -> dict[str, str]:
    """Return a table from one of the page's scripts."""
    found = re.search(rf"export const {name} = (\{{.*?\n\}});", (SCRIPTS / script).read_text(), re.DOTALL)
    assert found is not None
    read: dict[str, str] = json.loads(found[1])
    return read


def test_the_page_has_the_same_tables() -> None:
    assert table("terms.js", "TERMS") == TERMS
    assert table("terms.js", "TYPES") == TYPES
    assert set(table("arguments.js", "OF_QUEUES")) == set(NAMES)
    assert tuple(table("arguments.js", "OF_EXCHANGES")) == EXCHANGE_ARGUMENT_NAMES


def test_what_the_broker_reads_is_known() -> None:
    read = {
        name
        for file in (SOURCES / "broker").rglob("*.py")
        for name in re.findall(r"arguments\.get\(\"([a-z-]+)\"", file.read_text())
    }
    elsewhere = {name for name in read if name.startswith("x-leveret-") or name in ("x-priority", "x-match")}
    assert {"x-max-priority", "x-consumer-timeout"} <= read
    assert read - elsewhere - set(NAMES) - set(EXCHANGE_ARGUMENT_NAMES) == set()


def test_the_log_tells_of_an_unknown_argument_once() -> None:
    bench, told = Bench(), list[str]()
    client = bench.connect()
    bench.broker.on_event = told.append
    for name in ("one", "two"):
        client.call(1, grammar.QUEUE_DECLARE, queue=name, arguments={"x-max-lenght": 5, "x-max-length": 5})
        client.call(1, grammar.EXCHANGE_DECLARE, exchange=name, type="fanout", arguments={"alternative": "a"})
    assert [text.split(" and has")[0] for text in told] == [
        "queue 'one': argument 'x-max-lenght' is unknown to this broker",
        "exchange 'one': argument 'alternative' is unknown to this broker",
    ]


def test_the_log_is_told_of_so_many_and_in_one_line() -> None:
    bench, told = Bench(), list[str]()
    client = bench.connect()
    bench.broker.on_event = told.append
    for number in range(120):
        arguments = {f"{number}\n" + "x" * 100: 1}
        client.call(1, grammar.QUEUE_DECLARE, queue=f"q{number}\x1b" + "q" * 200, arguments=arguments)
    assert len(told) == 100
    assert all("\n" not in text and "\x1b" not in text and len(text) < 400 for text in told)
