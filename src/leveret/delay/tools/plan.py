"""What becomes of one message that waits in a level: where to, after how long, or why it can't be told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from leveret.client import Delivery, Properties
from leveret.delay.due import remaining_in_level, wait_in_level
from leveret.delay.layout import Layout
from leveret.delay.message import received, sendable

if TYPE_CHECKING:
    from leveret.wire.table import Value

TOLD: Final = "leveret-delay-"
"""How the headers of poison messages begin that tell where a message was and why it is there."""


@dataclass(frozen=True)
class Plan:
    """destination: "" for a poison message; remaining: its wait from now on; reason: why it is poison."""

    delivery: Delivery
    destination: str
    remaining: timedelta = timedelta(0)
    reason: str = ""


def planned(layout: Layout, level: int, delivery: Delivery, at: datetime, restarts: bool) -> Plan:
    """The plan for a message in the queue of ``level``. restarts: what tells no time waits its whole level again."""
    address = layout.address(delivery.routing_key)
    if address is None:
        return Plan(delivery, "", reason=f"its routing key is not one of a layout with {layout.levels} levels")
    units, destination = address
    remaining = remaining_in_level(layout, level, units, delivery.properties.headers or {}, at)
    if remaining is None and restarts:
        remaining = wait_in_level(layout, level, units)
    if remaining is None:
        return Plan(delivery, "", reason="its headers do not say when it is due")
    return Plan(delivery, destination, remaining)


def moved(plan: Plan, target: Layout) -> tuple[str, str, Properties]:
    """Exchange, routing key and properties to publish it with. ``ValueError`` where the target can't delay it so long.

    The headers that tell when it was sent and is due stay as they are, and so does its message id. Its expiration goes,
    as it would in its first level; its user id goes, since the broker accepts only that of the login.
    """
    units = target.units(plan.remaining)
    key = target.routing_key(units, plan.destination)
    properties = replace(plan.delivery.properties, expiration=None, user_id=None)
    if target.delay_header in (properties.headers or {}):
        properties = received(properties)
    else:
        properties = sendable(properties, target.delay_header, units, plan.remaining)
    return target.entrance(units), key, replace(properties, delivery_mode=plan.delivery.properties.delivery_mode)


def poison(plan: Plan, queue: str) -> Properties:
    """The properties to put it aside with: all it has, and where it was."""
    properties = plan.delivery.properties
    told: dict[str, Value] = {
        TOLD + "queue": queue,
        TOLD + "routing-key": plan.delivery.routing_key,
        TOLD + "reason": plan.reason,
    }
    headers: dict[str, Value] = {**(properties.headers or {}), **told}
    return replace(properties, headers=headers, expiration=None, user_id=None)
