"""Continuous messages with ids of the producer's into all sources, while the broker dies and restarts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from leveret.client import BlockingConnection, ClientError, Properties

CHUNK: Final = 50
PAUSE_S: Final = 0.1
BACKLOG: Final = 600
"""The most messages that a flow's production is ahead of its output: some batches for the next driver."""


class Producer:
    """Publishes to each flow's source, in chunks that are confirmed.

    A chunk that the broker's death interrupted is not repeated: it may have been stored or not, so its ids are
    ``uncertain``. The test updates ``came_out`` for each flow, which lets production continue.
    """

    def __init__(self, url: str, flows: Sequence[str]) -> None:
        self._url = url
        self._flows = flows
        self.confirmed: dict[str, set[str]] = {flow: set() for flow in flows}
        self.uncertain: dict[str, set[str]] = {flow: set() for flow in flows}
        self.came_out = dict.fromkeys(flows, 0)
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer")
        self._thread.start()

    def stop(self) -> None:
        """Stop when the chunks in flight are confirmed."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with BlockingConnection(self._url, name="producer", reconnect=False) as connection:
                    self._produce(connection)
            except (ClientError, OSError):
                self._stop.wait(PAUSE_S)

    def _produce(self, connection: BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_select()
        while not self._stop.wait(PAUSE_S):
            for flow in self._flows:
                if len(self.confirmed[flow]) >= self.came_out[flow] + BACKLOG:
                    continue
                ids = [f"id-{self._number + count:07}" for count in range(CHUNK)]
                self._number += CHUNK
                self.uncertain[flow].update(ids)
                for one in ids:
                    properties = Properties(message_id=one, delivery_mode=2)
                    channel.publish(one.encode(), routing_key=flow, properties=properties, mandatory=True)
                channel.wait_for_confirms(60)
                self.confirmed[flow].update(ids)
                self.uncertain[flow].difference_update(ids)
