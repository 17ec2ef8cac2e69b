"""Names that the broker generates, for queues, consumer tags and direct reply-to, and names that it reserves."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from typing import Final

DEFAULT_EXCHANGE: Final = "amq.default"  # the default exchange's name in permissions
REPLY_TO: Final = "amq.rabbitmq.reply-to"
REPLY_PREFIX: Final = "amq.rabbitmq.reply-to."
STAGE: Final = "amq.leveret.stage"  # by this name channels are attached to stages, and batches released
PUBLISHER: Final = "amq.leveret.publisher"  # by this name channels hold publisher references, and these are forgotten

RandomBytes = Callable[[int], bytes]

_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")


def generated(prefix: str, random_bytes: RandomBytes) -> str:
    """Return prefix plus 128 random bits as 22 characters, in the form of RabbitMQ's generated names."""
    return prefix + b2a_base64(random_bytes(16)).translate(_FOR_URLS)[:22].decode()
