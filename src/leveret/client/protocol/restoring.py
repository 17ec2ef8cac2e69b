"""The steps of a reconnect: declare what was declared, then bind, then open the channels again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import Answer, ChannelCore
from leveret.client.protocol.confirms import nobody_waits
from leveret.client.protocol.errors import ChannelClosed, ClientError, ConnectionClosed, PublishError
from leveret.client.protocol.topology import RecordedTopology
from leveret.client.protocol.waiter import Waiter
from leveret.wire.errors import NOT_FOUND, RESOURCE_LOCKED
from leveret.wire.method import Method

T = TypeVar("T")

NODE_DOWN: Final = "is down or inaccessible"
"""Part of RabbitMQ's 404 for a queue whose node does not run."""


class RestoredConnection(Protocol):
    """What restoring needs of its connection."""

    restored: Waiter[None]

    def open_channel(
        self,
        on_settled: Callable[[T, PublishError | None], None],
        on_failed: Callable[[ClientError], None],
        is_kept: bool = True,
    ) -> ChannelCore[T]: ...

    def restore_channels(self) -> list[Waiter[Answer]]: ...

    def interrupt(self, error: ConnectionClosed) -> None: ...

    def fail(self, error: ConnectionClosed) -> None: ...


class Restoring:
    """Restores a connection on a socket that has just been opened. It ends with that socket."""

    def __init__(self, connection: RestoredConnection, topology: RecordedTopology) -> None:
        self._connection = connection
        self._topology = topology
        self._channel: ChannelCore[Any] = connection.open_channel(nobody_waits, self._channel_failed, is_kept=False)

    def begin(self) -> None:
        """Declare exchanges and queues, and go on when the broker has answered."""
        answers = [self._channel.request(requests.open_channel())]
        for name, request in self._topology.declarations():
            declared = self._channel.request(request)
            if name is not None:
                declared.when_succeeded(partial(self._declared, name))
            answers.append(declared)
        _when_succeeded(answers, self._bind)

    def _declared(self, name: str, answer: Answer) -> None:
        assert isinstance(answer, Method)
        self._topology.renamed(name, answer)

    def _bind(self) -> None:
        answers = []
        for request in self._topology.bindings():
            answers.append(self._channel.request(request._replace(values=self._topology.translated(request.values))))
        _when_succeeded(answers, self._restore_channels)

    def _restore_channels(self) -> None:
        self._channel.close()
        restored = self._connection.restored
        # a channel that the broker closes meanwhile, such as one whose consumer's queue is gone, is its user's affair
        _when_done(self._connection.restore_channels(), lambda: restored.succeed(None))

    def _channel_failed(self, error: ClientError) -> None:
        """Try again later what may pass by itself; the connection ends if the broker refuses a declaration."""
        if not isinstance(error, ChannelClosed) or error.code == 200:
            return
        text = f"what this connection had declared could not be declared again after a reconnect: {error}"
        closed = ConnectionClosed(error.code, text)
        # an exclusive queue is locked until the broker notices that its old connection is gone
        if error.code == RESOURCE_LOCKED or (error.code == NOT_FOUND and NODE_DOWN in error.text):
            self._connection.interrupt(closed)
        else:
            self._connection.fail(closed)


def _when_done(answers: Sequence[Waiter[Answer]], then: Callable[[], None]) -> None:
    """Call `then` when all answers have arrived, or their channels have ended."""
    missing = len(answers)

    def arrived() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            then()

    for answer in answers:
        answer.when_done(arrived)
    if not answers:
        then()


def _when_succeeded(answers: Sequence[Waiter[Answer]], then: Callable[[], None]) -> None:
    """Call `then` when all answers have arrived, unless one is an error."""
    _when_done(answers, lambda: then() if all(answer.error is None for answer in answers) else None)
