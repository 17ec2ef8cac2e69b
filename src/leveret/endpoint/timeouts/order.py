"""What goes through ``<endpoint>.TimeoutsDispatcher``: the order to send one timeout (source: NServiceBus 6)."""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from leveret.client import Delivery
from leveret.endpoint.timeouts.timeout import properties_of
from leveret.wire.properties import Properties

TIMEOUT_ID: Final = "Timeout.Id"
CLAIM: Final = "Leveret.Timeout.Claim"
"""Whose claim the order is made under: one that is out of date is not carried out."""


STORE: Final = "Leveret.Timeout.Store"
"""Which store holds the timeout: processes of an endpoint share the queue, and should share the store, too."""


class Order(NamedTuple):
    """To send this timeout, claimed under this name, of the store with this identity."""

    id: str
    claim: str
    store: str


def order(id: str, claim: str, store: str) -> Properties:
    """The control message's properties; its body is empty."""
    return Properties(
        headers={
            TIMEOUT_ID: id,
            CLAIM: claim,
            STORE: store,
            "NServiceBus.ControlMessage": "True",
            "NServiceBus.MessageIntent": "Send",
        },
        delivery_mode=2,
        message_id=uuid.uuid4().hex,
    )


def order_of(delivery: Delivery) -> Order | None:
    """The order; None for anything else, such as one of an older timeout manager."""
    headers = properties_of(delivery).headers or {}
    id, claim, store = (headers.get(name) for name in (TIMEOUT_ID, CLAIM, STORE))
    if isinstance(id, str) and isinstance(claim, str) and isinstance(store, str) and claim:
        return Order(id, claim, store)
    return None
