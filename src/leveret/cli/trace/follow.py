"""Following of selected messages through firehose events, step by step."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from leveret.cli.trace.events import CONFIRM, PUBLISH, TraceEvent, deaths_of, hops_of, seconds_of
from leveret.control.tables import plain_value, sayable
from leveret.delay import LAYOUTS

Step = dict[str, Any]
# how many messages are remembered by their ids
KNOWN_MAX: Final = 10_000
_DIGITS: Final = re.compile(r"(?:[01]\.){1,28}")
_LEVEL: Final = re.compile(r"(.+)(?:\.delay-level-|_delayed_)\d+")
_UNIT_MS: Final = {layout.prefix: layout.unit_ms for layout in LAYOUTS.values()}
UNIT_MS: Final = 1000


@dataclass(frozen=True)
class TraceFilter:
    """A filter for messages; all given criteria must match. Values of headers are compared as text."""

    message_id: str | None = None
    correlation_id: str | None = None
    key: str | None = None
    exchange: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def takes(self, event: TraceEvent) -> bool:
        """Whether the event's message matches."""
        if self.message_id is not None and event.message_id != self.message_id:
            return False
        if self.correlation_id is not None and event.correlation_id != self.correlation_id:
            return False
        if self.key is not None and self.key not in event.names("routing_keys"):
            return False
        if self.exchange is not None and event.text("exchange_name") != self.exchange:
            return False
        return all(name in event.headers and _as_text(event.headers[name]) == text for name, text in self.headers)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(plain_value(value))  # type: ignore[arg-type]


@dataclass
class FollowedMessage:
    """The state of a followed message.

    Attributes:
        published_s: the time of its publish.
        due_s: when it is to be delivered; None for at once.
        left: the queues that it is in, as far as events tell.
        deaths: reported deaths by queue and reason, with their counts.
    """

    published_s: float | None = None
    due_s: float | None = None
    left: set[str] = field(default_factory=set)
    deaths: dict[tuple[str, str], int] = field(default_factory=dict)


class Follower:
    """A follower of the messages that match a filter."""

    def __init__(self, wanted: TraceFilter) -> None:
        self.seen = 0  # number of steps so far
        self.is_done = False  # a message was published, and delivered from each of its queues
        self._wanted = wanted
        self._known: OrderedDict[str, FollowedMessage] = OrderedDict()
        self._unconfirmed: dict[tuple[str, int | None], list[tuple[int, str | None]]] = {}

    def steps(self, event: TraceEvent) -> list[Step]:
        """Return the steps of followed messages in an event."""
        if event.kind == CONFIRM:
            found = self._confirmed(event)
        elif not self._is_meant(event):
            return []
        else:
            found = self._published(event) if event.kind == PUBLISH else self._delivered(event)
        self.seen += len(found)
        return found

    def _is_meant(self, event: TraceEvent) -> bool:
        """Whether the event's message is followed. After a match it is known by its id, even if its key changes."""
        return event.message_id in self._known or self._wanted.takes(event)

    def _know(self, event: TraceEvent) -> FollowedMessage:
        if event.message_id is None:
            return FollowedMessage()
        known = self._known.pop(event.message_id, None) or FollowedMessage()
        self._known[event.message_id] = known
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return known

    def _published(self, event: TraceEvent) -> list[Step]:
        known = self._know(event)
        queues = event.names("routed_queues")
        hops = hops_of(event)
        known.published_s = known.published_s if hops and known.published_s is not None else event.at_s
        known.due_s = _due_s(event)
        known.left |= set(queues)
        connection, channel = event.where
        step = _step("federated" if hops else "published", event) | {
            "exchange": sayable(event.text("exchange_name")),
            "routing_keys": event.names("routing_keys"),
            "queues": queues,
            "connection": sayable(connection),
            "channel": channel,
            "user": sayable(event.text("user")),
        }
        if hops:
            step["hops"] = [_hop(hop) for hop in hops]
        if known.due_s is not None:
            step["delay_ms"] = round((known.due_s - event.at_s) * 1000)
        if event.told.get("is_provisional") is True:
            step["is_provisional"] = True
        number = event.number("publish_seq_no")
        if number is not None:
            self._unconfirmed.setdefault(event.where, []).append((number, event.message_id))
        self.is_done = self.is_done or (not queues and known.due_s is None)
        return [step]

    def _confirmed(self, event: TraceEvent) -> list[Step]:
        waiting = self._unconfirmed.get(event.where, [])
        first, last = event.number("first_seq_no") or 0, event.number("last_seq_no") or 0
        found = [each for each in waiting if first <= each[0] <= last]
        if not found:
            return []
        self._unconfirmed[event.where] = [each for each in waiting if not first <= each[0] <= last]
        kind = "confirmed" if event.name == "ack" else "refused"
        connection, channel = event.where
        where = {"connection": sayable(connection), "channel": channel}
        return [_step(kind, event, message_id) | where | {"publish_seq_no": number} for number, message_id in found]

    def _delivered(self, event: TraceEvent) -> list[Step]:
        known = self._know(event)
        steps = self._died(event, known)
        connection, channel = event.where
        redelivered = bool(event.told.get("redelivered"))
        step = _step("delivered", event) | {
            "queue": sayable(event.name),
            "exchange": sayable(event.text("exchange_name")),
            "routing_keys": event.names("routing_keys"),
            "connection": sayable(connection),
            "channel": channel,
            "user": sayable(event.text("user")),
            "redelivered": redelivered,
        }
        if known.published_s is not None:
            step["after_ms"] = round((event.at_s - known.published_s) * 1000)
        if known.due_s is not None:
            step["late_ms"] = round((event.at_s - known.due_s) * 1000)
        known.left.discard(event.name)
        if known.published_s is not None and not known.left - {str(death["queue"]) for death in deaths_of(event)}:
            self.is_done = True
        return [*steps, step]

    def _died(self, event: TraceEvent, known: FollowedMessage) -> list[Step]:
        """Return the deaths not reported yet; the firehose does not report a death when it happens."""
        steps = []
        for death in deaths_of(event):
            queue, reason, count = str(death.get("queue")), str(death.get("reason")), death.get("count")
            times = count if isinstance(count, int) else 1
            if known.deaths.get((queue, reason), 0) >= times:
                continue
            known.deaths[(queue, reason)] = times
            step = _step("dead-lettered", event) | {"queue": sayable(queue), "reason": sayable(reason), "count": times}
            died_s = seconds_of(death.get("time"))
            step["died_s"] = died_s
            steps.append(step)
        return steps


def _step(kind: str, event: TraceEvent, message_id: str | None = None) -> Step:
    named = message_id if event.kind == CONFIRM else event.message_id
    return {
        "step": kind,
        "at_ms": round(event.at_s * 1000, 3),
        "node": sayable(event.text("node")),
        "message_id": None if named is None else sayable(named),
    }


def _hop(hop: dict[str, Any]) -> dict[str, str]:
    return {name: sayable(str(hop[name])) for name in ("cluster-name", "vhost", "exchange", "uri") if name in hop}


def _due_s(event: TraceEvent) -> float | None:
    """Return when a message published now is due, by x-delay or a delay layout's digits; None if at once."""
    delay = event.headers.get("x-delay")
    if isinstance(delay, int) and not isinstance(delay, bool) and delay > 0:
        return event.at_s + delay / 1000
    level = _LEVEL.fullmatch(event.text("exchange_name"))
    for key in event.names("routing_keys") if level is not None else ():
        digits = _DIGITS.match(key)
        if digits is not None and level is not None:
            units = int(digits[0].replace(".", ""), 2)
            return event.at_s + units * _UNIT_MS.get(level[1], UNIT_MS) / 1000
    return None
