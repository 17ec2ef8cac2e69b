"""Changes of definitions, for commands."""

from __future__ import annotations

from leveret.broker.storage.definitions import Definition
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request


def put(node: BrokerNode, kind: str, definition: Definition) -> None:
    """Store a validated definition. Raises Refused if the journal could not restore it."""
    try:
        node.broker.definitions.put(kind, definition)
    except ValueError as error:
        raise bad_request(str(error)) from None
