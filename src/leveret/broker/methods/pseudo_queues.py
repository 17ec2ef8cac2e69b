"""Pseudo-queues: basic.get asks the broker for information over plain AMQP, so any client can.

| queue | body, in JSON |
| amq.leveret.stream.<name> | the state of this stream: streams/facts.py; needs read permission |
| amq.leveret.query.<name> | what this query has released and staged: stage_methods.py; for its owner |
| amq.leveret.publisher.<name> | how far this publisher reference has got: publisher_methods.py; for its owner |

RabbitMQ answers 404, so a client knows that the other side is not leveret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.access.access import QUEUE, check
from leveret.broker.access.users import READ
from leveret.broker.channel import BrokerChannel
from leveret.broker.methods import publisher_methods, stage_methods
from leveret.broker.methods.answers import send_json
from leveret.broker.methods.queue_methods import fail, lookup
from leveret.broker.streams.facts import facts_of
from leveret.broker.streams.stream import Stream
from leveret.wire import grammar
from leveret.wire.errors import NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.method import Method
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

ANSWERS: Final = "amq.leveret."
STREAM: Final = "amq.leveret.stream."
QUERY: Final = "amq.leveret.query."
PUBLISHERS: Final = "amq.leveret.publisher."


def answer(peer: Peer, channel: BrokerChannel, method: Method) -> None:
    """Handle basic.get of a queue whose name begins with ANSWERS: get-ok with the answer, or get-empty.

    Raises 406 without no-ack, 404 for an unknown question, and the errors of each question.
    """
    name = method.text("queue")
    told = _told(peer, method, name)
    if not method.flag("no_ack"):
        raise fail(method, PRECONDITION_FAILED, f"the answer of '{name}' cannot be acknowledged")
    if told is None:
        peer.send(channel.number, grammar.BASIC_GET_EMPTY)
        return
    send_json(peer, channel, grammar.BASIC_GET_OK, name, told, message_count=0)


def _told(peer: Peer, method: Method, name: str) -> dict[str, Value] | None:
    """Return the answer, or None."""
    if name.startswith(STREAM):
        return _stream_facts(peer, method, name[len(STREAM) :])
    if name.startswith(QUERY):
        return stage_methods.told(peer, method, name[len(QUERY) :])
    if name.startswith(PUBLISHERS):
        return publisher_methods.told(peer, method, name[len(PUBLISHERS) :])
    raise fail(method, NOT_FOUND, f"no queue '{name}' in vhost '{peer.vhost.name}'")


def _stream_facts(peer: Peer, method: Method, name: str) -> dict[str, Value]:
    """Return the facts of a stream. Raises 403 without read permission, 404 for no such queue, 406 for no stream."""
    check(peer, method, READ, QUEUE, name)
    queue = lookup(peer, name)
    if queue is None:
        raise fail(method, NOT_FOUND, f"no queue '{name}' in vhost '{peer.vhost.name}'")
    if not isinstance(queue, Stream):
        raise fail(method, PRECONDITION_FAILED, f"{queue.what()} is not a stream")
    return facts_of(queue)
