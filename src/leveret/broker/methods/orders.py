"""What stages and publisher references share: each has a name and an owner, and takes orders published as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from leveret.broker.messages.contents import body_of
from leveret.wire.errors import ACCESS_REFUSED, PRECONDITION_FAILED, ProtocolError
from leveret.wire.grammar import BASIC_PUBLISH, MethodSpec

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

NAME_OCTETS_MAX: Final = 200
"""For basic.get, a name is part of the name of a queue."""
ADMINISTRATOR: Final = "administrator"


def refused(text: str, spec: MethodSpec = BASIC_PUBLISH) -> ProtocolError:
    """Return the error 406 for an order, or for another method."""
    return ProtocolError(PRECONDITION_FAILED, text, spec.class_id, spec.method_id)


def parse(content: bytes) -> dict[str, object]:
    """Return the fields of an order. Raises 406."""
    try:
        fields = json.loads(body_of(content))
    except (ValueError, RecursionError):
        raise refused("the body must be JSON in UTF-8") from None
    if not isinstance(fields, dict):
        raise refused("the body must be a JSON object")
    return fields


def check_name(value: object, what: str, spec: MethodSpec = BASIC_PUBLISH) -> str:
    """Return a name from an order or from the arguments of another method. Raises 406."""
    if not isinstance(value, str) or not 0 < len(value.encode("utf-8", "surrogateescape")) <= NAME_OCTETS_MAX:
        raise refused(f"{what} must be a string of 1 to {NAME_OCTETS_MAX} octets", spec)
    return value


def is_integer(value: object, least: int, most: int) -> bool:
    """Whether a value is an integer in this range, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_owner(peer: Peer, owner: str | None, what: str, spec: MethodSpec = BASIC_PUBLISH) -> None:
    """Raise 403 if another user than the peer's owns this, unless the peer's is an administrator; None: nobody does."""
    if owner not in (None, peer.user) and not peer.broker.users.has_tag(peer.user, ADMINISTRATOR):
        text = f"access to {what} in vhost '{peer.vhost.name}' refused for user '{peer.user}'"
        raise ProtocolError(ACCESS_REFUSED, text, spec.class_id, spec.method_id)
