"""Notices new messages in streams without polling the broker."""

from __future__ import annotations

from collections.abc import Mapping

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, ConsumerCancelled


class TailNotifier:
    """A consumer with a prefetch of 1 at the end of each stream: its delivery is the notification.

    Raises ``ConnectionClosed``. The deletion of a stream counts as a notification, too.
    """

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection
        self._channel: BlockingChannel | None = None
        self._waits: dict[str, tuple[int, str]] = {}

    def wait(self, nexts: Mapping[str, int], timeout_s: float) -> bool:
        """Whether a stream has, or gets within ``timeout_s`` seconds, a message at its offset in ``nexts`` or above."""
        try:
            channel = self._listening(nexts)
            delivery = channel.next_delivery(timeout_s)
            if delivery is None:
                return False
            # the message was only a signal; the next consumer starts at the stream's new end
            channel.cancel(delivery.consumer_tag)
            self._waits = {name: wait for name, wait in self._waits.items() if wait[1] != delivery.consumer_tag}
        except (ChannelClosed, ConsumerCancelled):
            self._stop()
        return True

    def _listening(self, nexts: Mapping[str, int]) -> BlockingChannel:
        if any(self._waits[name][0] != nexts.get(name) for name in self._waits):
            self._stop()
        if self._channel is None:
            self._channel = self._connection.channel()
        for name, offset in nexts.items():
            if name not in self._waits:
                arguments = {"x-stream-offset": offset}
                self._waits[name] = (offset, self._channel.consume(name, arguments=arguments, prefetch_count=1))
        return self._channel

    def _stop(self) -> None:
        """Forget all consumers; closing the channel drops their deliveries."""
        channel, self._channel, self._waits = self._channel, None, {}
        if channel is not None and not channel.is_closed:
            channel.close()
