"""The plan for moving one message of a level: its destination and remaining delay, or why they are unknown."""

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
"""Prefix of the headers of poison messages that say where a message was and why it was moved."""


@dataclass(frozen=True)
class Plan:
    """The plan for one message.

    Attributes:
        delivery: The message.
        destination: Its destination, "" for a poison message.
        remaining: Its wait from now on.
        reason: Why it is a poison message, "" if it is none.
    """

    delivery: Delivery
    destination: str
    remaining: timedelta = timedelta(0)
    reason: str = ""


def planned(layout: Layout, level: int, delivery: Delivery, at: datetime, restarts: bool) -> Plan:
    """Plan a message of the queue of ``level``. With restarts, one without a due time waits its whole level again."""
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
    """Return exchange, routing key and properties to publish a message with on the target.

    The headers with its time of sending and due time are kept, and so is its message id. Its expiration is removed, as
    in its first level; its user id is removed, since the broker accepts only that of the login. Raises ``ValueError``
    if the target's longest delay is too short.
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
    """Return the properties of a poison message: its own, and headers that say where it was."""
    properties = plan.delivery.properties
    told: dict[str, Value] = {
        TOLD + "queue": queue,
        TOLD + "routing-key": plan.delivery.routing_key,
        TOLD + "reason": plan.reason,
    }
    headers: dict[str, Value] = {**(properties.headers or {}), **told}
    return replace(properties, headers=headers, expiration=None, user_id=None)
