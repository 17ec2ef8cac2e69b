"""Properties of a publish that the broker acts on: expiration, user-id, reply-to (error texts as in RabbitMQ)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64

from leveret.broker.access.users import IMPERSONATOR, Users
from leveret.broker.channel import BrokerChannel
from leveret.broker.names import REPLY_TO
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

REPLY_TO_BYTES: Final = REPLY_TO.encode()
EXPIRATION_MS_MAX: Final = 315_360_000_000


def expiration_us(data: bytes, at: i64) -> i64:
    """Return the TTL that the short string at this offset gives in milliseconds. Raises 406 if it is invalid."""
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
    """Raise 406 unless the short string at this offset is the publisher's name.

    Impersonators may use any name, and links the names of their upstream's users.
    """
    user = data[at + 1 : at + 1 + data[at]].decode("utf-8", "replace")
    if user != peer.user and not peer.is_link:
        check_said_user(peer.broker.users, peer.user, user)


def check_said_user(users: Users, publisher: str, said: str) -> None:
    """Raise 406 unless this publisher may name this user in user-id."""
    if said != publisher and not users.has_tag(publisher, IMPERSONATOR):
        text = f"user_id property set to '{said}' but authenticated user was '{publisher}'"
        raise ProtocolError(PRECONDITION_FAILED, text, 60, 40)


def with_reply_name(channel: BrokerChannel, content: bytes, at: i64) -> bytes:
    """Return the content with the requester's generated name in place of reply-to amq.rabbitmq.reply-to.

    Raises 406 if the channel does not consume replies.
    """
    if content[at + 1 : at + 22] != REPLY_TO_BYTES:
        return content
    if channel.reply is None:
        raise ProtocolError(PRECONDITION_FAILED, "fast reply consumer does not exist", 60, 40)
    name = channel.reply_name
    octets: i64 = len(name)
    out = BytesWriter()
    out.write(content[:3])
    write_i32_be(out, i32(i64(read_i32_be(content, 3)) + octets - 21))
    out.write(content[7:at])
    out.append(int(octets))
    out.write(name)
    out.write(content[at + 22 :])
    return out.getvalue()
