"""Properties of a publish that the broker checks or acts on: expiration and user-id (texts as RabbitMQ words them)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.users import IMPERSONATOR
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

EXPIRATION_MS_MAX: Final = 315_360_000_000


def expiration_us(data: bytes, at: i64) -> i64:
    """The time to live that the short string at this offset says in milliseconds; 406 if it says none."""
    text = data[at + 1 : at + 1 + data[at]].decode("utf-8", "replace")
    reason = ""
    digits = text[1:] if text[:1] in ("+", "-") else text
    leading = len(digits) - len(digits.lstrip("0123456789"))
    if leading == 0:
        reason = "no_integer"
    elif leading < len(digits):
        reason = f'{{leftover_string,"{digits[leading:]}"}}'
    elif text[0] == "-" and int(digits) != 0:
        reason = f"{{value_negative,{text}}}"
    elif len(digits) > 20 or int(digits) > EXPIRATION_MS_MAX:
        reason = f"{{value_too_large,{digits}}}"
    if reason:
        raise ProtocolError(PRECONDITION_FAILED, f"invalid expiration '{text}': {reason}", 60, 40)
    return int(digits) * 1000


def check_user_id(peer: Peer, data: bytes, at: i64) -> None:
    """406 unless the short string at this offset is the publisher's name, or an impersonator publishes."""
    user = data[at + 1 : at + 1 + data[at]].decode("utf-8", "replace")
    if user != peer.user and not peer.broker.users.has_tag(peer.user, IMPERSONATOR):
        text = f"user_id property set to '{user}' but authenticated user was '{peer.user}'"
        raise ProtocolError(PRECONDITION_FAILED, text, 60, 40)
