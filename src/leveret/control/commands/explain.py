"""Explains where a message would go, and why, without publishing it."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import msgspec

from leveret.broker.exchanges.binding import Binding, bindings_to, count_to
from leveret.broker.queues.queue import Queue
from leveret.broker.vhost import VHost
from leveret.control.command import Query
from leveret.control.commands.messages import published_header
from leveret.control.explain.explanation import HELD, UNROUTABLE, Explanation
from leveret.control.explain.message import ExplainedMessage, message_of, refusals
from leveret.control.explain.reasons import quoted, reason_of
from leveret.control.explain.walk import Changed, Walk, steady
from leveret.control.node import BrokerNode
from leveret.control.refusal import CONFLICT, Refused, bad_request
from leveret.control.sliced import Sliced, Steps
from leveret.control.tables import sayable
from leveret.control.validation.checks import vhost_named
from leveret.control.views.view import View
from leveret.wire.errors import ProtocolError

LIMIT_MAX: Final = 1000
DEPTH_MAX: Final = 32
PAYLOAD_OCTETS_MAX: Final = 1 << 40
# attempts to answer while definitions change; then an answer in one go, if it takes no more steps than UNDISTURBED_MAX
ATTEMPTS_MAX: Final = 3
UNDISTURBED_MAX: Final = 200
# bindings shown of the queue that is asked about
BINDINGS_MAX: Final = 100


class ExplainRoute(Query):
    """Explain where a message published now would go. Nothing is published or changed."""

    exchange: str  # "" or amq.default is the default exchange
    vhost: str = "/"
    routing_key: str = ""
    properties: dict[str, Any] = msgspec.field(default_factory=dict)  # as in publish
    payload_bytes: int = 0  # size of the body, for the limits of queues
    mandatory: bool = False  # whether an unroutable message is returned
    user: str | None = None  # whose permissions are checked, None = no check
    destination: str = ""  # a queue: explain why the message does or does not reach it
    limit: int = 20  # bindings shown of each exchange, and queues shown
    depth: int = 8  # steps followed into the future: dead letters and delays

    def run(self, node: BrokerNode) -> object:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise bad_request(f"limit must be from 1 to {LIMIT_MAX}, not {self.limit}")
        if not 0 <= self.depth <= DEPTH_MAX:
            raise bad_request(f"depth must be from 0 to {DEPTH_MAX}, not {self.depth}")
        if not 0 <= self.payload_bytes <= PAYLOAD_OCTETS_MAX:
            raise bad_request(f"payload_bytes must be from 0 to {PAYLOAD_OCTETS_MAX}, not {self.payload_bytes}")
        return Sliced(self._steps(node, vhost_named(node, self.vhost)))

    def _steps(self, node: BrokerNode, vhost: VHost) -> Steps[object]:
        """Start again if definitions change meanwhile; if they keep changing, make a short answer without pauses."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return (yield from steady(vhost, self._answer(node, vhost)))
            except Changed:
                pass
        steps = self._answer(node, vhost)
        try:
            for _ in range(UNDISTURBED_MAX):
                next(steps)
        except StopIteration as end:
            return end.value
        text = f"exchanges, queues and bindings of vhost '{vhost.name}' change too quickly: try again"
        raise Refused(CONFLICT, text)

    def _answer(self, node: BrokerNode, vhost: VHost) -> Steps[object]:
        name = "" if self.exchange == "amq.default" else self.exchange
        message, troubles = message_of(name, self.routing_key, published_header(self.properties, self.payload_bytes))
        exchange = vhost.exchanges.get(name)
        troubles = refusals(node, vhost, name, exchange, message, self.user) + troubles
        most = node.broker.settings.max_message_octets
        if self.payload_bytes > most:
            troubles.append(
                f"406 PRECONDITION_FAILED - message size {self.payload_bytes} is larger than max size {most}"
            )
        told = Explanation(node, vhost, self.limit, self.depth, self.destination)
        answer: View = {
            "vhost": sayable(vhost.name),
            "exchange": sayable(name),
            "routing_keys": [sayable(key) for key in message.keys],
            "refusals": [sayable(text) for text in troubles],
        }
        route: View | None = None
        if not (name and exchange is None):
            try:
                route = yield from told.of(exchange, message)
            except ProtocolError:
                assert troubles  # an invalid x-delay
        answer["summary"] = self._summary(troubles, route)
        answer["route"] = route
        if self.destination:
            answer["destination"] = yield from self._asked(vhost, message)
        answer["is_truncated"] = told.is_truncated
        return answer

    def _summary(self, troubles: list[str], route: View | None) -> str:
        if route is None:
            return "The broker rejects the message."
        begun = "The broker rejects the message from this publisher. Otherwise: " if troubles else ""
        return begun + self._outcome(route)

    def _outcome(self, route: View) -> str:
        if route["outcome"] == HELD:
            return "The message reaches no queue yet: a delayed exchange holds it."
        if route["outcome"] == UNROUTABLE:
            end = "is returned to the publisher (basic.return, 312 NO_ROUTE)" if self.mandatory else "is dropped"
            return f"The message reaches no queue and {end}; with publisher confirms it is confirmed."
        words = {"takes": "receives it", "perhaps": "may receive it, at random", "refuses": "rejects it", "cut": "is "
                                                                                                                 "skipped"}
        counts = [f"{count} {_queues(count)} {_plural(words[verdict], count)}"
                  for verdict, count in route["verdicts"].items() if count]  # fmt: skip
        return f"{', '.join(counts) or 'A requester receives it'}."

    # -- why (not) this queue? -----------------------------------------------------------------------------------------

    def _asked(self, vhost: VHost, message: ExplainedMessage) -> Steps[View]:
        """Return the bindings of the queue that is asked about, and whether each of them matches."""
        queue = vhost.queues.get(self.destination)
        view: View = {"queue": sayable(self.destination), "exists": queue is not None, "bindings": []}
        if queue is None:
            return view
        exchange = vhost.exchanges.get(self.exchange)
        walk = None if exchange is None else Walk(vhost, exchange, message.envelope())
        if walk is not None:
            try:
                yield from walk.steps()
            except ProtocolError:
                walk = None
        is_default = self.exchange in ("", "amq.default")
        view["reached"] = queue.name in message.keys if is_default else walk is not None and queue.name in walk.queues
        view["binding_count"] = count_to(queue)
        for binding in islice(bindings_to(queue), BINDINGS_MAX):
            yield
            view["bindings"].append(_said(walk, binding, message))
        view["reason"] = _why(view, queue, is_default)
        return view


def _said(walk: Walk | None, binding: Binding, message: ExplainedMessage) -> View:
    source = binding.source
    row: View = {"source": sayable(source.name), "type": source.kind, "routing_key": sayable(binding.key)}
    visit = None if walk is None else walk.visits.get(source.name)
    if walk is None or visit is None:
        return row | {"matched": False, "reason": f"the message does not reach exchange {quoted(source.name)}"}
    if visit.held_us:
        return row | {"matched": False, "reason": f"exchange {quoted(source.name)} holds the message first"}
    reason = reason_of(visit, binding, message.keys, walk.envelope)
    return row | {"matched": visit.takes(binding), "reason": reason.text}


def _why(view: View, queue: Queue, is_default: bool) -> str:
    if view["reached"]:
        return "the message reaches this queue"
    if view["binding_count"] == 0:
        return "the queue has no bindings: only the default exchange reaches it, with the queue's name as routing key"
    if is_default:
        return "the default exchange routes only to the queue whose name equals the routing key"
    if any(row["matched"] for row in view["bindings"]):
        return "a binding matches, but random routing may choose another one"
    return "none of its bindings matches the message"


def _queues(count: int) -> str:
    return "queue" if count == 1 else "queues"


def _plural(words: str, count: int) -> str:
    verb, _, rest = words.partition(" ")
    plain = {"receives": "receive", "rejects": "reject", "is": "are"}.get(verb, verb)
    return f"{verb if count == 1 else plain} {rest}"
