"""A stream of confirmed messages during faults, and its result."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final, Self

import pika
from pika.exceptions import AMQPError

from ...waiting import ASK_AGAIN_S, until
from .site import Site, X

END: Final = "end"


class Stream:
    """Publishes numbers to the exchange of a site, on a thread of its own, until the block ends."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._parameters = pika.URLParameters(f"{site.uri()}?heartbeat=0")
        self._is_over = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._thread = threading.Thread(target=self._run, daemon=True, name="stream")
        self._published = 0
        self.confirmed: list[str] = []  # numbers with a confirm; others may arrive or not

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.go_on()
        self._thread.join()

    def more(self, count: int) -> None:
        """Wait until `count` more are confirmed."""
        goal = len(self.confirmed) + count
        until(lambda: len(self.confirmed) >= goal, lambda: f"{len(self.confirmed)} are confirmed, of {goal}")

    def pause(self) -> None:
        """Publish nothing, after the message that is under way, until go_on()."""
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def check(self, down: Site, queue: str) -> tuple[int, int]:
        """End the stream and read the queue downstream; return (lost messages, duplicates)."""
        self.__exit__()
        self._site.publish("k", END)
        counts = Counter(down.read(queue, END))
        lost = set(self.confirmed) - set(counts)
        assert not down.channel.basic_get(queue)[0], "more came behind the last one"
        return len(lost), counts.total() - len(counts)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with pika.BlockingConnection(self._parameters) as connection:
                    self._publish(connection)
            except (AMQPError, OSError):
                self._is_over.wait(ASK_AGAIN_S)  # the broker is down

    def _publish(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        while self._goes_on.wait() and not self._is_over.is_set():
            body = str(self._published)
            self._published += 1
            channel.basic_publish(X, "k", body.encode(), persistent)
            self.confirmed.append(body)
