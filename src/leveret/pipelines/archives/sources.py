"""The streams and queues to archive: their names in the lake, and the number of messages that wait in them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from leveret.client import BlockingConnection, ClientError
from leveret.client.protocol.url import parse_url
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.errors import PipelineError
from leveret.spark.queues.errors import SourceError, explained
from leveret.spark.queues.spool.segment import SpoolSegment
from leveret.spark.streams.bounds import QueryStreams
from leveret.spark.streams.errors import NoStream, StreamBroken
from leveret.spark.streams.offsets import StreamPosition, parse_offset
from leveret.spark.streams.options import StreamOptions

STREAM: Final = "stream"
QUEUE: Final = "queue"

_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.]+")
_NAME_LENGTH_MAX: Final = 60


@dataclass(frozen=True)
class ArchiveSource:
    """A stream or queue to archive.

    Attributes:
        kind: STREAM or QUEUE.
        broker: the broker's name in rows.
        options: further reader options.
    """

    kind: str
    name: str
    url: str
    broker: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The source's name in paths: readable, and unique for broker, virtual host, kind and name."""
        whole = json.dumps([self.broker, parse_url(self.url).vhost, self.kind, self.name])
        plain = _PLAIN.sub("_", self.name)[:_NAME_LENGTH_MAX].strip(".") or "_"
        return f"{plain}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"

    def reader_options(self, spool_directory: str) -> dict[str, str]:
        """Return the options for ``format("leveret")``; a queue is read through a spool, each message once."""
        own = {"url": self.url, self.kind: self.name}
        if self.kind == QUEUE:
            own |= {"mode": "spool", "spoolDir": spool_directory}
        return {**self.options, **own}

    def waiting(self, planned: Mapping[str, Any], spool_directory: str) -> int:
        """Return the number of messages that no micro-batch has had yet, without taking any of them.

        ``planned`` is the offset in the checkpoint up to which everything is done, empty for a new checkpoint.

        Raises:
            PipelineError: the broker is unreachable, or the stream or queue does not exist.
        """
        try:
            return self._in_stream(planned) if self.kind == STREAM else self._in_queue(planned, spool_directory)
        except (ClientError, SourceError) as error:
            raise PipelineError(f"{self.kind} {self.name!r} at {self.broker}: {error}") from error
        except (NoStream, StreamBroken, ValueError) as error:
            raise PipelineError(str(error)) from error

    def _in_stream(self, planned: Mapping[str, Any]) -> int:
        options = StreamOptions.parse({**self.options, "url": self.url, "stream": self.name})
        streams = QueryStreams(options)
        try:
            done: dict[str, StreamPosition] = parse_offset(planned)
            waiting = 0
            for name in streams.partitions(done.keys()):
                bounds = streams.bounds(name)
                starting = options.starting.of(name)
                first = done[name].next if name in done else streams.locate(name, starting, bounds)
                waiting += max(0, bounds.next - max(first, bounds.first))
            return waiting
        finally:
            streams.close()

    def _in_queue(self, planned: Mapping[str, Any], spool_directory: str) -> int:
        with explained(self.name), BlockingConnection(self.url, reconnect=False) as connection:
            waiting = connection.channel().declare_queue(self.name, passive=True).message_count
        names = Storage.at(spool_directory).names("")
        spooled = max((one.end for one in map(SpoolSegment.parse, names) if one is not None), default=0)
        return waiting + max(0, spooled - int(planned.get("messages", 0)))
