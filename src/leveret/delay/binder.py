"""Binds destinations to the delivery exchange, many at a time, for whoever sends to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leveret.client import Channel, ChannelClosed, ClientError, Connection
from leveret.delay import topology
from leveret.delay.topology import ExchangeBinding, QueueBinding
from leveret.wire.errors import NOT_FOUND


class DestinationMissing(LookupError):
    """No endpoint of this name is there to be bound, so a message for it could never arrive. destination: its name."""

    def __init__(self, destination: str, text: str) -> None:
        super().__init__(destination, text)
        self.destination = destination
        self.text = text

    def __str__(self) -> str:
        return (
            f"the destination {self.destination!r} does not exist ({self.text}): "
            f"start the endpoint, or declare its queue, before sending to it"
        )


class Binder:
    """Declares bindings on a channel of its own: the broker closes it when a destination is missing.

    Whoever asks for a destination while it is being bound shares the answer; those that are asked for meanwhile go out
    together, so a thousand sends cost a few round trips. binding: what to declare for a destination.
    """

    def __init__(self, connection: Connection, binding: Callable[[str], ExchangeBinding | QueueBinding]) -> None:
        self._connection = connection
        self._binding = binding
        self._channel: Channel | None = None
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._asked: list[str] = []
        self._work: asyncio.Task[None] | None = None

    async def bind(self, destination: str) -> None:
        """Return when the binding stands. ``DestinationMissing``, or what else the broker refuses it with.

        Nobody else is disturbed when the caller is cancelled.
        """
        answer = self._answers.get(destination)
        if answer is None:
            answer = self._answers[destination] = asyncio.get_running_loop().create_future()
            self._asked.append(destination)
            if self._work is None:
                self._work = asyncio.create_task(self._serve())
        await asyncio.shield(answer)

    async def close(self) -> None:
        """Close the channel; who still waits gets ``CancelledError``."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait((self._work,))
        if self._channel is not None:
            await self._channel.close()

    async def _serve(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, []
                errors = await self._declare(asked)
                if len(asked) > 1 and any(isinstance(error, ChannelClosed) for error in errors):
                    # one of them closed the channel under the others: each is asked alone
                    errors = [(await self._declare([destination]))[0] for destination in asked]
                for destination, error in zip(asked, errors, strict=True):
                    self._answer(destination, error)
        finally:
            self._work = None
            for destination in list(self._answers):  # only where this task is cancelled
                self._answers.pop(destination).cancel()

    async def _declare(self, destinations: list[str]) -> list[BaseException | None]:
        """What became of each; they are sent without waiting in between."""
        try:
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._connection.channel()
        except ClientError as error:
            return [error] * len(destinations)
        channel = self._channel
        return await asyncio.gather(
            *(topology.declare(channel, [self._binding(destination)]) for destination in destinations),
            return_exceptions=True,
        )

    def _answer(self, destination: str, error: BaseException | None) -> None:
        answer = self._answers.pop(destination)
        if error is None:
            answer.set_result(None)
            return
        if isinstance(error, ChannelClosed) and error.code == NOT_FOUND:
            error = DestinationMissing(destination, error.text)
        answer.set_exception(error)
        answer.exception()  # its only caller may have gone
