"""The options of the queue source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from leveret.spark.options import URL_DEFAULT, number, url_of

PREFETCH_MAX: Final = 65_535
"""The largest prefetch: basic.qos has a 16-bit number, so no more messages can be unacknowledged."""

STREAM_MODES: Final = ("ack", "spool")
"""Values of ``mode`` for ``spark.readStream``; the first is the default."""

BATCH_MODES: Final = ("peek", "drain")
"""Values of ``mode`` for ``spark.read``; the first is the default."""

_MANY: Final = 1 << 40
_COMPRESSIONS: Final = ("none", "lz4", "zstd")
_IDENTITIES: Final = ("message_id", "content")


def mode(options: Mapping[str, str], modes: tuple[str, ...]) -> str:
    """Return option ``mode``; ``ValueError`` lists the allowed modes."""
    text = options.get("mode", modes[0]).lower()
    if text in modes:
        return text
    if text in STREAM_MODES or text in BATCH_MODES:
        reader = "spark.readStream" if modes is STREAM_MODES else "spark.read"
        raise ValueError(f"option mode: {text} is not available for {reader}; its modes are {' and '.join(modes)}")
    raise ValueError(f"option mode must be {' or '.join(modes)}, not {text!r}")


@dataclass(frozen=True)
class QueueOptions:
    """Which queue to read, and how much of it at a time.

    Attributes:
        rows_max: rows of a micro-batch.
        octets_max: octets of a micro-batch; the message that reaches this is its last one.
        prefetch: messages that the broker sends before their acknowledgement; None for two micro-batches.
    """

    queue: str
    url: str = URL_DEFAULT
    rows_max: int = 10_000
    octets_max: int = 128 << 20
    prefetch: int | None = None

    @staticmethod
    def parse(options: Mapping[str, str], rows_max: int = 10_000, rows_limit: int = PREFETCH_MAX) -> QueueOptions:
        """Read ``queue`` (required), ``url``, ``maxRowsPerTrigger``, ``maxBytesPerTrigger`` and ``prefetch``.

        ``ValueError`` names the wrong option.
        """
        queue = options.get("queue")
        if not queue:
            raise ValueError("option queue is missing: the name of the queue to read")
        rows_max = number(options, "maxRowsPerTrigger", rows_max, 1, rows_limit)
        prefetch = number(options, "prefetch", 0, 1, PREFETCH_MAX) or None
        octets_max = number(options, "maxBytesPerTrigger", 128 << 20, 1, _MANY)
        return QueueOptions(queue, url_of(options), rows_max, octets_max, prefetch)

    @property
    def prefetch_count(self) -> int:
        """The given prefetch, or two micro-batches: one that Spark works on, and the next, which arrives meanwhile."""
        return self.prefetch or min(PREFETCH_MAX, 2 * self.rows_max)


@dataclass(frozen=True)
class SpoolOptions:
    """Where the spool is, and how it is kept.

    Attributes:
        knows_content: whether redelivered messages without an id are recognised by their content.
        min_partitions: least number of partitions of a micro-batch.
    """

    directory: str
    compression: str | None = None
    knows_content: bool = False
    min_partitions: int = 1

    @staticmethod
    def parse(options: Mapping[str, str], needed_by: str) -> SpoolOptions:
        """Read ``spoolDir`` (required), ``spoolCompression``, ``spoolIdentity`` and ``minPartitions``.

        ``ValueError`` names the wrong option, and the mode ``needed_by`` if spoolDir is missing.
        """
        directory = options.get("spoolDir", "").removeprefix("file://")
        if not directory:
            raise ValueError(f"option spoolDir is missing: mode={needed_by} keeps acknowledged messages there")
        if not os.path.isabs(directory):
            raise ValueError(
                f"option spoolDir must be an absolute path that executors can access, too, not {directory!r}"
            )
        compression = _choice(options, "spoolCompression", _COMPRESSIONS)
        return SpoolOptions(
            directory,
            None if compression == "none" else compression,
            _choice(options, "spoolIdentity", _IDENTITIES) == "content",
            number(options, "minPartitions", 1, 1, 100_000),
        )


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a batch: ``rows_max`` (None: all ready messages), and ``octets_max`` of bodies, beyond which it
    fails."""

    rows_max: int | None = None
    octets_max: int = 1 << 30

    @staticmethod
    def parse(options: Mapping[str, str]) -> BatchLimits:
        """Read ``maxRows`` and ``maxBytes``; ``ValueError`` names the wrong option."""
        rows_max = number(options, "maxRows", 0, 1, _MANY) if "maxRows" in options else None
        return BatchLimits(rows_max, number(options, "maxBytes", 1 << 30, 1, _MANY))


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = options.get(name, choices[0]).lower()
    if text not in choices:
        raise ValueError(f"option {name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {text!r}")
    return text
