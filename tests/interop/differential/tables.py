"""Scripts that are not random: every argument with a value of every type on the wire."""

from __future__ import annotations

from typing import Any

from .script import Script, Step
from .values import OFFSETS, PLAIN_ARGUMENTS, QUEUE_ARGUMENT_NAMES, STREAM_ARGUMENTS, WRONG, wrong


def _declare(name: str, arguments: dict[str, Any]) -> Step:
    return Step("1.1", "queue.declare", {"queue": name, "arguments": arguments})


def _declare_stream(name: str, arguments: dict[str, Any]) -> Step:
    return Step(
        "1.1", "queue.declare", {"queue": name, "durable": True, "arguments": {"x-queue-type": "stream", **arguments}}
    )


def each_value(argument: str) -> Script:
    """Declare and delete a queue with every value of an argument."""
    script = []
    for item in wrong(argument):
        script += [_declare("q1", {argument: item}), Step("1.1", "queue.delete", {"queue": "q1"})]
    return script


def each_other_value(argument: str) -> Script:
    """Declare a queue with the argument, and one without it, again with every value."""
    script = [_declare("q1", {argument: PLAIN_ARGUMENTS[argument]}), _declare("q2", {})]
    for item in wrong(argument):
        script += [_declare("q1", {argument: item}), _declare("q2", {argument: item})]
    return [*script, _declare("q1", {})]


def each_value_of_a_stream(argument: str) -> Script:
    """Declare and delete a stream with every value of an argument, and declare another one again with each."""
    script = [_declare_stream("q2", {argument: STREAM_ARGUMENTS[argument]} if argument in STREAM_ARGUMENTS else {})]
    for item in wrong(argument):
        script += [
            _declare_stream("q1", {argument: item}),
            Step("1.1", "queue.delete", {"queue": "q1"}),
            _declare_stream("q2", {argument: item}),
        ]
    return script


def each_offset() -> Script:
    """Consume from a stream with every value of x-stream-offset; the consumer fails at last if the value is invalid."""
    script = [_declare_stream("q1", {})]
    for prefetch in (0, 1):
        script.append(Step("1.1", "basic.qos", {"prefetch_count": prefetch}))
        for item in OFFSETS:
            consume = {"queue": "q1", "consumer_tag": "c1", "arguments": {"x-stream-offset": item}}
            script += [Step("1.1", "basic.consume", consume), Step("1.1", "basic.cancel", {"consumer_tag": "c1"})]
    return script


def each_priority() -> Script:
    """Consume with every value of x-priority."""
    script = [_declare("q1", {})]
    for item in WRONG:
        consume = {"queue": "q1", "consumer_tag": "c1", "arguments": {"x-priority": item}}
        script += [Step("1.1", "basic.consume", consume), Step("1.1", "basic.cancel", {"consumer_tag": "c1"})]
    return script


def each_alternate() -> Script:
    """Declare an exchange with every value of alternate-exchange, and again with every other value."""
    script = [Step("1.1", "exchange.declare", {"exchange": "e1", "type": "fanout"})]
    for item in WRONG:
        alternate = {"type": "fanout", "arguments": {"alternate-exchange": item}}
        script += [
            Step("1.1", "exchange.declare", {"exchange": "e2", **alternate}),
            Step("1.1", "exchange.delete", {"exchange": "e2"}),
            Step("1.1", "exchange.declare", {"exchange": "e1", **alternate}),
        ]
    return script


def each_binding() -> Script:
    """Use every value as an argument of a headers binding, and in the headers of a message."""
    script = [_declare("q1", {})]
    for item in WRONG:
        bound = {"queue": "q1", "exchange": "amq.headers", "arguments": {"x-match": "all", "a": item}}
        unbound = {name: each for name, each in bound.items() if name != "queue"}
        script += [
            Step("1.1", "queue.bind", {"queue": "q1", "exchange": "amq.headers", "arguments": {"x-match": item}}),
            Step("1.1", "queue.bind", bound),
            Step("1.1", "basic.publish", {"exchange": "amq.headers"}, {"headers": {"a": item}}),
            Step("1.1", "basic.publish", {"exchange": "amq.headers"}, {"headers": {"a": 1}}),
            Step("1.1", "queue.unbind", {"queue": "q1", **unbound}),
        ]
    return script


TABLES: dict[str, Script] = {
    **{f"{name}: declared": each_value(name) for name in QUEUE_ARGUMENT_NAMES},
    **{f"{name}: declared again": each_other_value(name) for name in QUEUE_ARGUMENT_NAMES},
    **{
        f"{name}: of a stream": each_value_of_a_stream(name)
        for name in (*STREAM_ARGUMENTS, "x-dead-letter-exchange")
    },
    "x-stream-offset": each_offset(),
    "x-priority": each_priority(),
    "alternate-exchange": each_alternate(),
    "headers": each_binding(),
}
