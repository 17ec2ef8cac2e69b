"""Level queues, in which the delayed messages of NServiceBus, Celery and leveret.delay wait.

delay/layout.py has their layouts; the broker recognizes them by names and arguments. Level L waits 2**L units and
dead-letters to the exchange of the next lower level, level 0 to the delivery exchange. Messages keep their routing key:
one binary digit for each level, the highest level first, and then the destination.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue

LEVELS_MAX: Final = 28
_NSERVICEBUS: Final = ".delay-level-"
_CELERY: Final = "celery_delayed_"


class Level:
    """A level of a delay layout."""

    def __init__(self, prefix: str, number: i64, unit_us: i64, onward: str) -> None:
        self.prefix = prefix  # common prefix of all names of the layout
        self.number = number  # 0 is the shortest wait
        self.unit_us = unit_us  # how long level 0 waits
        self.onward = onward  # the exchange for messages that have waited


def level_of(name: str, arguments: dict[str, Value]) -> Level | None:
    """Return the level of a queue with this name and these effective arguments; None if it is no level queue.

    Prefixes are "nsb" of nsb.delay-level-NN, "celery_delayed" of celery_delayed_N, and others in names of these forms.
    """
    if _NSERVICEBUS in name:
        prefix, _, digits = name.rpartition(_NSERVICEBUS)
        between, width, last = _NSERVICEBUS, 2, ".delay-delivery"
    elif _CELERY in name:
        prefix, _, digits = name.rpartition("_")
        between, width, last = "_", 1, "_delivery"
    else:
        return None
    ttl = arguments.get("x-message-ttl")
    if not (prefix and digits.isdecimal() and digits.isascii()) or not isinstance(ttl, int):
        return None
    number = int(digits)
    if number >= LEVELS_MAX or digits != f"{number:0{width}d}":
        return None
    onward = f"{prefix}{between}{number - 1:0{width}d}" if number else prefix + last
    goes_on = arguments.get("x-dead-letter-exchange") == onward and "x-dead-letter-routing-key" not in arguments
    if not goes_on or ttl < 1 or ttl % (1 << number) != 0:
        return None
    return Level(prefix, number, (ttl >> number) * 1000, onward)


def levels_of(queue: Queue) -> int:
    """Return how many levels a level queue's layout has, by the queue's own binding; 0 if it has no such binding."""
    level = queue.level
    if level is None:
        return 0
    for source, bindings in queue.incoming.items():
        if source.name != queue.name or source.is_deleted:
            continue
        for binding in bindings.values():
            higher = binding.key.removesuffix("1.#")
            count = len(higher) // 2
            if len(higher) < len(binding.key) and higher == "*." * count:
                return int(level.number) + 1 + count
    return 0


def address(key: str, levels: int) -> tuple[int, str] | None:
    """Return delay in units and destination of a routing key; None if it has no digits for `levels` levels."""
    width = 2 * levels
    digits, destination = key[:width:2], key[width:]
    if not levels or not destination or key[1:width:2] != "." * levels or not set(digits) <= {"0", "1"}:
        return None
    return int(digits, 2), destination


def due_us(level: Level, units: int, expires_us: i64) -> i64:
    """Return when a message with this delay reaches its destination whose wait on this level ends at expires_us."""
    lower = i64(units) & ((1 << level.number) - 1)
    return expires_us + lower * level.unit_us
