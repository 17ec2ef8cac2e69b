"""Messages of ``<endpoint>.TimeoutsDispatcher``: each is the order to send one timeout (source: NServiceBus 6)."""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from leveret.client import Delivery
from leveret.endpoint.timeouts.timeout import properties_of
from leveret.wire.properties import Properties

TIMEOUT_ID: Final = "Timeout.Id"
CLAIM: Final = "Leveret.Timeout.Claim"
"""The claim of the order; an order whose claim has lapsed is not carried out."""


STORE: Final = "Leveret.Timeout.Store"
"""Id of the store that holds the timeout. Processes of an endpoint share the queue, and should share the store."""


class Order(NamedTuple):
    """The order to send a timeout: its id, the name of its claim, and the id of its store."""

    id: str
    claim: str
    store: str


def order(id: str, claim: str, store: str) -> Properties:
    """Return the properties of an order; its body is empty."""
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
    """Read an order; None for any other message, such as an order of an older timeout manager."""
    headers = properties_of(delivery).headers or {}
    id, claim, store = (headers.get(name) for name in (TIMEOUT_ID, CLAIM, STORE))
    if isinstance(id, str) and isinstance(claim, str) and isinstance(store, str) and claim:
        return Order(id, claim, store)
    return None
