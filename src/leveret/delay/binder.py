"""Binds destinations to the delivery exchange, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leveret.client import Channel, ChannelClosed, ClientError, Connection
from leveret.delay import topology
from leveret.delay.topology import ExchangeBinding, QueueBinding
from leveret.wire.errors import NOT_FOUND


class DestinationMissing(LookupError):
    """The destination does not exist, so a message for it could not arrive.

    Attributes:
        destination (str): Name of the destination.
        text (str): The broker's reply text.
    """

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
    """Declares bindings on a channel of its own, which the broker closes when a destination is missing.

    Calls for a destination that is being bound share its answer, and destinations requested meanwhile are bound
    together, so a thousand sends cost a few round trips. `binding` returns the declaration for a destination.
    """

    def __init__(self, connection: Connection, binding: Callable[[str], ExchangeBinding | QueueBinding]) -> None:
        self._connection = connection
        self._binding = binding
        self._channel: Channel | None = None
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._asked: list[str] = []
        self._work: asyncio.Task[None] | None = None

    async def bind(self, destination: str) -> None:
        """Declare the binding and wait for the answer. Cancelling one caller does not affect the others.

        Raises ``DestinationMissing``, or ``ChannelClosed`` if the broker refuses for another reason.
        """
        answer = self._answers.get(destination)
        if answer is None:
            answer = self._answers[destination] = asyncio.get_running_loop().create_future()
            self._asked.append(destination)
            if self._work is None:
                self._work = asyncio.create_task(self._serve())
        await asyncio.shield(answer)

    async def close(self) -> None:
        """Close the channel; callers that are still waiting get ``CancelledError``."""
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
                    # one of them closed the channel for all: bind each alone
                    errors = [(await self._declare([destination]))[0] for destination in asked]
                for destination, error in zip(asked, errors, strict=True):
                    self._answer(destination, error)
        finally:
            self._work = None
            for destination in list(self._answers):  # not empty only if this task is cancelled
                self._answers.pop(destination).cancel()

    async def _declare(self, destinations: list[str]) -> list[BaseException | None]:
        """Declare the bindings without waiting in between; return the error of each, or None."""
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
        answer.exception()  # marks it as retrieved, since its caller may be cancelled
