"""What was seen of a broker: once, or twice with some seconds between, so that counters tell how busy it is."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from leveret.cli.doctor.parts import PARTS
from leveret.cli.doctor.source import Source, Unavailable

Row = dict[str, Any]
Key = tuple[str, str]
MONITORS: Final = frozenset({"monitoring", "administrator"})


@dataclass
class Snapshot:
    """parts: answers by the names of PARTS; missing: why others could not be had."""

    parts: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, names: set[str]) -> Snapshot:
        """Ask for these parts. Unreachable if the broker can't be asked at all."""
        taken = cls()
        for name, part in PARTS.items():
            if name in names:
                try:
                    taken.parts[name] = source.fetch(part)
                except Unavailable as error:
                    taken.missing[name] = str(error)
        return taken


class Observation:
    """now: what there is; before: the same span_s seconds ago, None if it was not looked at twice."""

    def __init__(self, now: Snapshot, before: Snapshot | None = None, span_s: float = 0.0) -> None:
        self.now = now
        self.before = before
        self.span_s = span_s

    def rows(self, part: str) -> list[Row]:
        """A list; [] if it could not be had."""
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
        """Of the product that it says it is; of leveret, its own."""
        said = self.overview
        return str(said.get("leveret_version") or said.get("product_version") or said.get("rabbitmq_version", "?"))

    @property
    def product(self) -> str:
        return "leveret" if self.is_leveret else str(self.overview.get("product_name", "RabbitMQ"))

    # counters

    def rate(self, part: str, row: Row, path: str) -> float:
        """How much a counter of this row has grown in a second; 0.0 for what was not there before."""
        old = self._before[part].get(_identity(row))
        if old is None or self.span_s <= 0:
            return 0.0
        return (number(row, path) - number(old, path)) / self.span_s

    def was_there(self, part: str, row: Row) -> bool:
        """Whether it was there at the first look, too."""
        return _identity(row) in self._before[part]

    def overview_rate(self, path: str) -> float:
        """The same of a counter of the overview."""
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

    # what is where

    @cached_property
    def queues(self) -> dict[Key, Row]:
        """By virtual host and name."""
        return {(row["vhost"], row["name"]): row for row in self.rows("queues")}

    @cached_property
    def exchanges(self) -> dict[Key, Row]:
        """By virtual host and name."""
        return {(row["vhost"], row["name"]): row for row in self.rows("exchanges")}

    @cached_property
    def channels(self) -> dict[str, Row]:
        return {row["name"]: row for row in self.rows("channels")}

    @cached_property
    def bound(self) -> dict[Key, list[Row]]:
        """The bindings of each source, by virtual host and name."""
        found: dict[Key, list[Row]] = defaultdict(list)
        for row in self.rows("bindings"):
            found[row["vhost"], row["source"]].append(row)
        return found

    @cached_property
    def exchange_policies(self) -> dict[Key, Row]:
        """What policies say of exchanges that have one; the broker says this itself of queues only."""
        named = {(row["vhost"], row["name"]): row.get("definition", {}) for row in self.rows("policies")}
        found = {}
        for key, row in self.exchanges.items():
            policy = row.get("policy")
            if policy and (row["vhost"], policy) in named:
                found[key] = named[row["vhost"], policy]
        return found

    @cached_property
    def dead_letter_targets(self) -> set[Key]:
        """Queues that dead letters of others come to, as far as that can be told from bindings."""
        found = set()
        for queue in self.queues.values():
            way = dead_letter_way(queue)
            if way is not None:
                found |= {key for key in self.destinations(queue["vhost"], way[0], way[1]) if key != queue_key(queue)}
        return found

    def destinations(self, vhost: str, exchange: str, key: str | None) -> set[Key]:
        """The queues that a message with this routing key may come to; key: None = any."""
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
    """Whether a topic exchange's binding takes a routing key: * is one word, # any number of them."""
    parts = []
    for word in pattern.split("."):
        parts.append({"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}.get(word, r"\." + re.escape(word)))
    return re.fullmatch("".join(parts), "." + key) is not None


def number(row: Row, path: str) -> float:
    """A number at a dotted path; 0 if there is none."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def count(row: Row, path: str) -> int:
    """A whole number at a dotted path; 0 if there is none."""
    return int(number(row, path))


def setting(queue: Row, name: str) -> Any:
    """What an argument (x-NAME) or a policy (NAME) says of a queue; of two numbers the smaller one, as brokers do."""
    given = (queue.get("arguments") or {}).get(f"x-{name}")
    ruled = (queue.get("effective_policy_definition") or {}).get(name)
    if isinstance(given, int) and isinstance(ruled, int):
        return min(given, ruled)
    return ruled if given is None else given


def dead_letter_way(queue: Row) -> tuple[str, str | None] | None:
    """Exchange and routing key (None: each message's own) of its dead letters; None if they have none."""
    exchange = setting(queue, "dead-letter-exchange")
    key = setting(queue, "dead-letter-routing-key")
    return None if exchange is None else (str(exchange), None if key is None else str(key))


def queue_key(row: Row) -> Key:
    return row["vhost"], row["name"]


def _identity(row: Row) -> tuple[str, ...]:
    return str(row.get("vhost", "")), str(row.get("name", "")), str(row.get("id", ""))
