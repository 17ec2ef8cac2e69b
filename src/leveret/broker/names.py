"""Names that the broker makes: queues, consumer tags, direct reply-to."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from typing import Final

DEFAULT_EXCHANGE: Final = "amq.default"  # what permissions call it
REPLY_TO: Final = "amq.rabbitmq.reply-to"
REPLY_PREFIX: Final = "amq.rabbitmq.reply-to."
STAGE: Final = "amq.leveret.stage"  # where channels are attached to stages, and batches released

RandomBytes = Callable[[int], bytes]

_FOR_URLS: Final = bytes.maketrans(b"+/", b"-_")


def generated(prefix: str, random_bytes: RandomBytes) -> str:
    """prefix plus 128 random bits as 22 characters, in the form of RabbitMQ's own names."""
    return prefix + b2a_base64(random_bytes(16)).translate(_FOR_URLS)[:22].decode()
