"""The observed state of a broker: one sample, or two some seconds apart, so that counters give rates."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from leveret.cli.doctor.parts import PARTS
from leveret.cli.doctor.source import StateSource, Unavailable

Row = dict[str, Any]
Key = tuple[str, str]
MONITORS: Final = frozenset({"monitoring", "administrator"})


@dataclass
class StateSample:
    """One sample.

    Attributes:
        parts: answers by the names in PARTS.
        missing: the reasons why other parts are unavailable.
    """

    parts: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: StateSource, names: set[str]) -> StateSample:
        """Fetch these parts. Raises Unreachable if the broker does not answer at all."""
        taken = cls()
        for name, part in PARTS.items():
            if name in names:
                try:
                    taken.parts[name] = source.fetch(part)
                except Unavailable as error:
                    taken.missing[name] = str(error)
        return taken


class Observation:
    """The state of a broker that checks examine."""

    def __init__(self, now: StateSample, before: StateSample | None = None, span_s: float = 0.0) -> None:
        self.now = now  # the current sample
        self.before = before  # the sample span_s seconds earlier; None without one
        self.span_s = span_s

    def rows(self, part: str) -> list[Row]:
        """Return a part that is a list; [] if it is unavailable."""
        rows = self.now.parts.get(part, [])
        return rows if isinstance(rows, list) else []

    @property
    def overview(self) -> Row:
        overview = self.now.parts.get("overview")
        return overview if isinstance(overview, dict) else {}

    @property
    def is_leveret(self) -> bool:
        return "leveret_version" in self.overview

    @property
    def version(self) -> str:
        """The version of leveret, or of the product that the broker claims to be."""
        said = self.overview
        return str(said.get("leveret_version") or said.get("product_version") or said.get("rabbitmq_version", "?"))

    @property
    def product(self) -> str:
        return "leveret" if self.is_leveret else str(self.overview.get("product_name", "RabbitMQ"))

    # counters

    def rate(self, part: str, row: Row, path: str) -> float:
        """Return the growth per second of a counter of this row; 0.0 if the row is new."""
        old = self._before[part].get(_identity(row))
        if old is None or self.span_s <= 0:
            return 0.0
        return (number(row, path) - number(old, path)) / self.span_s

    def was_there(self, part: str, row: Row) -> bool:
        """Whether the row was in the first sample, too."""
        return _identity(row) in self._before[part]

    def overview_rate(self, path: str) -> float:
        """Return the growth per second of a counter of the overview."""
        old = self.before.parts.get("overview") if self.before else None
        if not isinstance(old, dict) or self.span_s <= 0:
            return 0.0
        return (number(self.overview, path) - number(old, path)) / self.span_s

    @cached_property
    def _before(self) -> dict[str, dict[tuple[str, ...], Row]]:
        found: dict[str, dict[tuple[str, ...], Row]] = defaultdict(dict)
        for part, rows in (self.before.parts if self.before else {}).items():
            if isinstance(rows, list):
                found[part] = {_identity(row): row for row in rows}
        return found

    # topology

    @cached_property
    def queues(self) -> dict[Key, Row]:
        """Queues by virtual host and name."""
        return {(row["vhost"], row["name"]): row for row in self.rows("queues")}

    @cached_property
    def exchanges(self) -> dict[Key, Row]:
        """Exchanges by virtual host and name."""
        return {(row["vhost"], row["name"]): row for row in self.rows("exchanges")}

    @cached_property
    def channels(self) -> dict[str, Row]:
        return {row["name"]: row for row in self.rows("channels")}

    @cached_property
    def bound(self) -> dict[Key, list[Row]]:
        """The bindings of each source exchange, by its virtual host and name."""
        found: dict[Key, list[Row]] = defaultdict(list)
        for row in self.rows("bindings"):
            found[row["vhost"], row["source"]].append(row)
        return found

    @cached_property
    def exchange_policies(self) -> dict[Key, Row]:
        """The policy definitions of exchanges that have a policy; the API gives these for queues only."""
        named = {(row["vhost"], row["name"]): row.get("definition", {}) for row in self.rows("policies")}
        found = {}
        for key, row in self.exchanges.items():
            policy = row.get("policy")
            if policy and (row["vhost"], policy) in named:
                found[key] = named[row["vhost"], policy]
        return found

    @cached_property
    def dead_letter_targets(self) -> set[Key]:
        """The queues that receive dead letters of other queues, as far as bindings tell."""
        found = set()
        for queue in self.queues.values():
            way = dead_letter_way(queue)
            if way is not None:
                found |= {key for key in self.destinations(queue["vhost"], way[0], way[1]) if key != queue_key(queue)}
        return found

    def destinations(self, vhost: str, exchange: str, key: str | None) -> set[Key]:
        """Return the queues that a message with this routing key (None: any) may reach."""
        if exchange == "":
            return {(vhost, key)} if key is not None and (vhost, key) in self.queues else set()
        found: set[Key] = set()
        seen, todo = {exchange}, [exchange]
        while todo:
            source = todo.pop()
            kind = self.exchanges.get((vhost, source), {}).get("type")
            for binding in self.bound[vhost, source]:
                if kind == "direct" and key is not None and binding["routing_key"] != key:
                    continue
                if kind == "topic" and key is not None and not topic_matches(binding["routing_key"], key):
                    continue
                name = binding["destination"]
                if binding["destination_type"] == "queue":
                    found.add((vhost, name))
                elif name not in seen:
                    seen.add(name)
                    todo.append(name)
        return found


def topic_matches(pattern: str, key: str) -> bool:
    """Whether a topic binding matches a routing key: * is one word, # any number of words."""
    parts = []
    for word in pattern.split("."):
        parts.append({"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}.get(word, r"\." + re.escape(word)))
    return re.fullmatch("".join(parts), "." + key) is not None


def number(row: Row, path: str) -> float:
    """Return the number at a dotted path, or 0."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def count(row: Row, path: str) -> int:
    """Return the integer at a dotted path, or 0."""
    return int(number(row, path))


def setting(queue: Row, name: str) -> Any:
    """Return a queue's argument (x-NAME) or policy value (NAME); of two numbers the smaller, as brokers do."""
    given = (queue.get("arguments") or {}).get(f"x-{name}")
    ruled = (queue.get("effective_policy_definition") or {}).get(name)
    if isinstance(given, int) and isinstance(ruled, int):
        return min(given, ruled)
    return ruled if given is None else given


def dead_letter_way(queue: Row) -> tuple[str, str | None] | None:
    """Return exchange and routing key (None: the message's own) of a queue's dead letters, or None."""
    exchange = setting(queue, "dead-letter-exchange")
    key = setting(queue, "dead-letter-routing-key")
    return None if exchange is None else (str(exchange), None if key is None else str(key))


def queue_key(row: Row) -> Key:
    return row["vhost"], row["name"]


def _identity(row: Row) -> tuple[str, ...]:
    return str(row.get("vhost", "")), str(row.get("name", "")), str(row.get("id", ""))
