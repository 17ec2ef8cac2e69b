"""A service over AMQP that passes every request to a function of the test, which answers when it likes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from leveret.client import BlockingChannel, BlockingConnection, Delivery, Properties


class Answer(Protocol):
    """Answers a request; the reply has its correlation id, unless `properties` have another, and these properties."""

    def __call__(self, request: Delivery, body: bytes, **properties: Any) -> None: ...


class Service:
    """Serves a queue in a thread, as a context manager.

    `behaviour` is called with each request and a function that answers one; by default requests are answered in
    capitals. `queue` is the queue's name, by default a unique one.
    """

    def __init__(
        self, url: str, behaviour: Callable[[Delivery, Answer], None] | None = None, queue: str | None = None
    ) -> None:
        self.queue = queue or f"spark.rpc.{uuid.uuid4().hex[:12]}"
        self.seen: list[bytes] = []
        self._url = url
        self._behaviour = behaviour or (lambda request, answer: answer(request, request.body.upper()))
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="service")

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _serve(self) -> None:
        with BlockingConnection(self._url, reconnect=False) as connection, connection.channel() as channel:
            channel.declare_queue(self.queue, durable=False, auto_delete=True)
            channel.consume(self.queue, no_ack=True)
            self._ready.set()
            while not self._stop.is_set():
                for request in channel.deliveries(1000, 0.05):
                    self.seen.append(request.body)
                    self._behaviour(request, partial(_answer, channel))
                channel.flush()


def _answer(channel: BlockingChannel, request: Delivery, body: bytes, **properties: Any) -> None:
    known = {"correlation_id": request.correlation_id, **properties}
    channel.publish(body, "", request.reply_to or "", Properties(**known))
