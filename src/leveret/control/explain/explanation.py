"""The complete explanation: the route of a message from an exchange, and its further routes.

An explanation is a tree. Its branches are messages that have waited: released by a delayed exchange, or dead letters.
They are routed by the bindings of this moment. Its size is limited: the bindings and queues of one walk by `limit`, the
steps into the future by `depth`, the walks of one answer by WALKS_MAX.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.broker.dead_letters import dead_lettering
from leveret.broker.delayed.delay import released
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.messages.carbon_copies import CarbonCopies, blind_keys, split_key
from leveret.broker.messages.entry import Entry
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_types import queue_type
from leveret.broker.vhost import VHost
from leveret.control.explain.fate import Fate, seconds
from leveret.control.explain.message import ExplainedMessage
from leveret.control.explain.reasons import quoted, reason_of
from leveret.control.explain.walk import Visit, Walk
from leveret.control.node import BrokerNode
from leveret.control.sliced import CHUNK, Steps
from leveret.control.tables import sayable
from leveret.control.views.binding import binding_view
from leveret.control.views.view import View
from leveret.wire.errors import ProtocolError

WALKS_MAX: Final = 100
# items without a pause where each takes as long as finding a reason
FEW: Final = 8
TAKES, REFUSES, PERHAPS, CUT = "takes", "refuses", "perhaps", "cut"
VERDICTS: Final = (REFUSES, CUT, TAKES, PERHAPS)
ROUTED, HELD, UNROUTABLE = "routed", "held", "unroutable"


class Death:
    """A message that was dead-lettered."""

    def __init__(self, address: dead_lettering.DeadLetterAddress, reason: str) -> None:
        self.exchange = address.exchange  # the dead letter exchange, None = the default exchange
        self.message = ExplainedMessage(address.key, address.keys, address.content, -1)
        self._history = address.history
        self._reason = reason

    def cuts(self, queue: Queue) -> bool:
        """Return whether the message is not routed to this queue because that would be a cycle."""
        return dead_lettering.is_cut(self._history, self._reason, queue)


class Explanation:
    """Makes an explanation; with `destination`, only of bindings to it, and in detail only of this queue."""

    def __init__(self, node: BrokerNode, vhost: VHost, limit: int, depth: int, destination: str) -> None:
        self._node = node
        self._vhost = vhost
        self._limit = limit
        self._depth = depth
        self._destination = destination
        self._walks = 0
        self.is_truncated = False

    def of(
        self, exchange: Exchange | None, message: ExplainedMessage, depth: int = 0, death: Death | None = None
    ) -> Steps[View]:
        """Explain where a message goes from an exchange (None: the default one); `death` if it is a dead letter."""
        self._walks += 1
        if exchange is None:
            return (yield from self._by_default(message, depth, death))
        walk = Walk(self._vhost, exchange, message.envelope())
        yield from walk.steps()
        steps: list[View] = []
        for visit in walk.visits.values():
            if len(steps) == self._limit:
                self.is_truncated = True
                break
            steps.append((yield from self._step(walk, visit, message, depth)))
        queues = yield from self._queues(walk.queues, walk.certain, walk, message, depth, death)
        is_held = any(visit.held_us for visit in walk.visits.values())
        return {
            "outcome": HELD if is_held and not walk.queues else _outcome(queues),
            "exchange_count": len(walk.visits),
            "exchanges": steps,
            **queues,
        }

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def _by_default(self, message: ExplainedMessage, depth: int, death: Death | None) -> Steps[View]:
        found: dict[str, Queue] = {}
        rows: list[View] = []
        replies = 0
        for key in dict.fromkeys(message.keys):
            queue = self._vhost.queues.get(key)
            if queue is not None:
                found[key] = queue
            elif key in self._vhost.replies:
                replies += 1
            what = "a queue with this name exists" if queue is not None else f"queue {quoted(key)} does not exist"
            if key in self._vhost.replies:
                what = "a requester waits for it (direct reply-to): it is delivered at once or lost"
            rows.append({"routing_key": sayable(key), "matched": queue is not None, "reason": what})
        step = {
            "exchange": "",
            "type": "direct",
            "reached": ["the default exchange uses the routing key as a queue name"],
            "is_certain": True,
            "bindings": {"total": len(self._vhost.queues), "matched": len(found), "shown": rows[: self._limit]},
        }
        queues = yield from self._queues(found, set(found), None, message, depth, death)
        outcome = ROUTED if replies else _outcome(queues)
        return {"outcome": outcome, "exchange_count": 1, "exchanges": [step], **queues}

    def _step(self, walk: Walk, visit: Visit, message: ExplainedMessage, depth: int) -> Steps[View]:
        exchange = visit.exchange
        step: View = {
            "exchange": sayable(exchange.name),
            "type": exchange.kind,
            "internal": exchange.internal,
            "reached": list(self._arrivals(walk, exchange)),
            "is_certain": exchange.name in walk.certain_exchanges,
        }
        if visit.held_us:
            step["held_ms"] = visit.held_us // 1000
            step["note"] = f"it is held for {seconds(visit.held_us)} (x-delay), then routed from here"
            step["next"] = yield from self._after_delay(exchange, message, depth)
            return step
        step["bindings"] = yield from self._bindings(walk, visit, message)
        step["alternate"] = _alternate(walk, visit)
        return step

    def _arrivals(self, walk: Walk, exchange: Exchange) -> Iterator[str]:
        if exchange is walk.start:
            yield "the message is published to this exchange"
        if exchange.name in walk.alternates:
            source = walk.alternates[exchange.name]
            yield f"it is the alternate exchange of {quoted(source)}, where no binding matches"
        for binding in walk.ways.get((False, exchange.name), ()):
            yield f"exchange {quoted(binding.source.name)} is bound to it with key {quoted(binding.key)}"

    def _bindings(self, walk: Walk, visit: Visit, message: ExplainedMessage) -> Steps[View]:
        """Return matching bindings first, then a sample of the others."""
        shown: dict[int, Binding] = {}
        matched = 0
        for chosen in (True, False):
            source = visit.found if chosen else visit.exchange.every()
            if not chosen and visit.count >= visit.exchange.binding_count:
                break
            for count, binding in enumerate(source):
                if count % CHUNK == 0:
                    yield
                if len(shown) - matched == self._limit:
                    break
                is_meant = not self._destination or binding.destination.name == self._destination
                if is_meant and visit.takes(binding) is chosen:
                    shown[id(binding)] = binding
            matched = len(shown)
        rows: list[View] = []
        for binding in shown.values():
            if len(rows) % FEW == 0:
                yield
            rows.append(self._row(walk, visit, binding, visit.takes(binding), message))
        return {"total": int(visit.exchange.binding_count), "matched": visit.count, "shown": rows}

    def _row(self, walk: Walk, visit: Visit, binding: Binding, takes: bool, message: ExplainedMessage) -> View:
        reason = reason_of(visit, binding, message.keys, walk.envelope)
        view = binding_view(self._vhost.name, binding)
        row: View = {name: view[name] for name in ("destination", "destination_type", "properties_key", "arguments")}
        row = {"destination": sayable(view["destination"]), **row, "routing_key": sayable(binding.key)}
        row |= {"matched": takes, "reason": reason.text}
        if takes and walk.is_second_way(binding):
            row["note"] = "the message has already visited this exchange and is not routed there twice"
        return row

    def _after_delay(self, exchange: Exchange, message: ExplainedMessage, depth: int) -> Steps[View | None]:
        if not self._may_go_on(depth):
            return None
        content = released(message.content)
        keys = [split_key(message.key)[1], *blind_keys(message.key), *CarbonCopies(content).cc]
        return (yield from self.of(exchange, ExplainedMessage(message.key, keys, content, message.ttl_us), depth + 1))

    # -- queues --------------------------------------------------------------------------------------------------------

    def _queues(
        self, found: dict[str, Queue], certain: set[str], walk: Walk | None, message: ExplainedMessage, depth: int,
        death: Death | None,
    ) -> Steps[View]:  # fmt: skip
        """Count all queues; show up to `limit` of them, refusing ones first."""
        counts = dict.fromkeys(VERDICTS, 0)
        chosen: dict[str, list[tuple[Queue, Fate]]] = {verdict: [] for verdict in VERDICTS}
        for count, queue in enumerate(found.values()):
            if count % FEW == 0:
                yield
            fate = Fate(queue, message)
            if death is not None and death.cuts(queue):
                verdict = CUT
            elif not fate.takes:
                verdict = REFUSES
            else:
                verdict = TAKES if queue.name in certain else PERHAPS
            counts[verdict] += 1
            is_meant = not self._destination or queue.name == self._destination
            if is_meant and len(chosen[verdict]) < self._limit:
                chosen[verdict].append((queue, fate))
        rows: list[View] = []
        for verdict in VERDICTS:
            for queue, fate in chosen[verdict][: self._limit - len(rows)]:
                yield
                rows.append((yield from self._queue(queue, fate, verdict, walk, message, depth)))
        return {"queue_count": len(found), "verdicts": counts, "queues": rows}

    def _queue(
        self, queue: Queue, fate: Fate, verdict: str, walk: Walk | None, message: ExplainedMessage, depth: int
    ) -> Steps[View]:
        ways = () if walk is None else walk.ways.get((True, queue.name), ())
        row: View = {
            "queue": sayable(queue.name),
            "type": queue_type(queue.arguments),
            "verdict": verdict,
            "reached": [f"exchange {quoted(way.source.name)}, key {quoted(way.key)}" for way in ways],
            "notes": fate.notes,
            "ttl_ms": fate.ttl_us // 1000 if fate.ttl_us >= 0 else None,
        }
        if verdict == CUT:
            row["notes"] = [
                "it has been in this queue before and was not rejected since: a cycle, so it is not routed here again"
            ]
            return row
        if verdict == PERHAPS:
            row["notes"] = ["random routing decides whether it reaches this queue", *fate.notes]
        if fate.death and queue.dead_letter_exchange is not None:
            row["dead_letter"] = yield from self._dead_letter(queue, fate, message, depth)
        return row

    def _dead_letter(self, queue: Queue, fate: Fate, message: ExplainedMessage, depth: int) -> Steps[View]:
        """Explain what happens after the queue; the levels of a delay layout are summarized."""
        levels: list[View] = []
        waited_us = 0
        while True:
            waited_us += max(fate.ttl_us, 0)
            if queue.level is not None:
                wait_ms = fate.ttl_us // 1000
                levels.append({"level": int(queue.level.number), "queue": sayable(queue.name), "wait_ms": wait_ms})
            died = self._died(queue, fate, message, waited_us)
            lower = (yield from self._lower_level(queue, died)) if isinstance(died, Death) else None
            if lower is None:
                break
            assert isinstance(died, Death)
            queue, message = lower, died.message
            fate = Fate(queue, message)
        view: View = {"reason": fate.death, "after_ms": waited_us // 1000, "to": fate.onward()}
        if levels:
            view["levels"] = levels
            view["delay"] = _delay_text(levels, waited_us, queue)
        if isinstance(died, str):
            view["trouble"] = died
        elif self._may_go_on(depth):
            view["next"] = yield from self.of(died.exchange, died.message, depth + 1, died)
        return view

    def _died(self, queue: Queue, fate: Fate, message: ExplainedMessage, after_us: int) -> Death | str:
        """Return the message as a dead letter, or the reason why it is not dead-lettered."""
        name = queue.dead_letter_exchange or ""
        exchange = self._vhost.exchanges.get(name)
        if name and exchange is None:
            return f"exchange {quoted(name)} does not exist: the message is dropped"
        entry = Entry(queue.message_list, message.content, message.key, 0, 0, 0)
        try:
            now_us = self._node.host.now_us() + after_us
            return Death(dead_lettering.addressed(self._vhost, exchange, queue, entry, fate.death, now_us), fate.death)
        except ProtocolError:
            return "its headers are malformed: the message is dropped"

    def _lower_level(self, queue: Queue, died: Death) -> Steps[Queue | None]:
        """Return the next level of the same delay layout, if it is the message's only destination."""
        if queue.level is None or died.exchange is None:
            return None
        walk = Walk(self._vhost, died.exchange, died.message.envelope())
        yield from walk.steps()
        if len(walk.queues) != 1:
            return None
        (found,) = walk.queues.values()
        if found.level is None or died.cuts(found):
            return None
        is_lower = found.level.prefix == queue.level.prefix and found.level.number < queue.level.number
        return found if is_lower else None

    def _may_go_on(self, depth: int) -> bool:
        if depth < self._depth and self._walks < WALKS_MAX:
            return True
        self.is_truncated = True
        return False


def _outcome(queues: View) -> str:
    """Return the overall outcome. A message that a queue refuses counts as routed: it causes no basic.return."""
    return ROUTED if any(queues["verdicts"][verdict] for verdict in (TAKES, PERHAPS, REFUSES)) else UNROUTABLE


def _delay_text(levels: list[View], waited_us: int, last: Queue) -> str:
    first, lower = levels[0], [f"level {each['level']}" for each in levels[1:]]
    then = f", then {', '.join(lower)}" if lower else ""
    arrives = f"arrives at exchange {quoted(last.dead_letter_exchange or '')} after {seconds(waited_us)}"
    return f"waits {seconds(first['wait_ms'] * 1000)} here (level {first['level']}){then}; {arrives}"


def _alternate(walk: Walk, visit: Visit) -> View | None:
    """Return the exchange's alternate exchange, and whether it is used."""
    exchange = visit.exchange
    if exchange.alternate is None:
        return None
    view: View = {"exchange": sayable(exchange.alternate), "taken": visit.alternate is not None}
    if visit.alternate is not None:
        is_first = walk.alternates.get(exchange.alternate) == exchange.name
        view["reason"] = "no binding matches" + ("" if is_first else "; the message has already been there")
    elif visit.found:
        view["reason"] = "a binding matches, even if it leads to no queue"
    else:
        view["reason"] = "no exchange has this name: the message is not routed"
    return view
