"""Moves what waits in one layout to another, on the same broker or on a second one.

A message is acknowledged where it was after the other side has confirmed it: whatever is cut or killed, none is lost,
and only those that were on the way then are there twice, with the same message id. Nothing becomes early, since what
is left of a delay is rounded up and the new wait begins after the old one (source of the algorithm: `delays migrate`
and `delays transfer` of NServiceBus's rabbitmq-transport).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from leveret.client import Channel, ChannelClosed, Connection, Delivery, PublishError, Unroutable
from leveret.delay.instant import now
from leveret.delay.layout import Layout
from leveret.delay.tools.creation import create
from leveret.delay.tools.destinations import Binding, Destinations
from leveret.delay.tools.plan import Plan, moved, planned, poison
from leveret.wire.errors import NOT_FOUND

WINDOW: Final = 256
"""Messages that are on the way at the same time."""

QUORUM_WINDOW: Final = 32
"""The same where they come from quorum queues.

A channel of RabbitMQ hands so many commands to a quorum queue at once and keeps the others for later (its setting
quorum_commands_soft_limit): acknowledgements beyond them are lost when the channel is closed, and the messages are
there twice.
"""

LEFT_MAX: Final = 10_000
"""Messages of one level that can't be moved; beyond, what is behind them is left, too."""

SAMPLE_MAX: Final = 1_000
"""Messages of each level that a dry run looks at."""

NO_LAYOUT: Final = "no level of this layout exists"


@dataclass
class Progress:
    """level: which one; done: messages of it that are dealt with; total: how many it had when its turn came."""

    level: int
    done: int
    total: int


@dataclass
class Summary:
    """What came of it, in messages.

    moved, due (of them: had nothing left to wait for), poisoned, unseen (of a dry run: not looked at), left (reason ->
    how many stay where they were), missing (levels that are not there), destinations (names).
    """

    moved: int = 0
    due: int = 0
    poisoned: int = 0
    unseen: int = 0
    left: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    destinations: list[str] = field(default_factory=list)


class Mover:
    """Moves from ``layout`` on ``source`` to ``target_layout`` on ``target``, which may be the same connection.

    poison_queue: on the source, for messages that don't tell when they are due; it is declared when the first comes.
    restarts: those wait for their whole level again instead. on_progress: called after every step.
    """

    def __init__(
        self,
        source: Connection,
        layout: Layout,
        target: Connection,
        target_layout: Layout,
        poison_queue: str,
        *,
        binding: Binding = Binding.AUTO,
        restarts: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._source = source
        self._layout = layout
        self._target = target
        self._target_layout = target_layout
        self._poison_queue = poison_queue
        self._destinations = Destinations(target, target_layout, binding)
        is_classic = layout.queue_type == "classic" or "x-queue-mode" in dict(layout.queue_arguments)
        self._window = WINDOW if is_classic else QUORUM_WINDOW
        self._restarts = restarts
        self._on_progress = on_progress or (lambda progress: None)
        self._has_poison_queue = False
        self._summary = Summary()

    async def run(self) -> Summary:
        """Declare the target, then move level after level, the highest first: what falls due meanwhile goes down, and
        is met again. A level gives no more than it had when its turn came, so this ends while others send.

        ``LookupError`` where the source has none of its levels, ``LayoutConflict`` where the target can't be declared;
        ``ConnectionClosed`` where one side has gone: call it again then, with new connections.
        """
        counts = await self._counts()
        await create(self._target, self._target_layout)
        try:
            async with await self._target.channel() as publishing, await self._source.channel() as poisoning:
                await publishing.confirm_select()
                await poisoning.confirm_select()
                for level in counts:
                    async with await self._source.channel() as channel:  # its end puts back what stays
                        await self._level(level, channel, publishing, poisoning)
        finally:
            await self._destinations.close()
        self._summary.destinations = self._destinations.names
        return self._summary

    async def dry_run(self) -> Summary:
        """What `run` would do, from the first thousand messages of each level, which are put back. Nothing is declared.

        To the broker they were delivered once: they are marked so, and a quorum queue counts it.
        """
        for level, count in (await self._counts()).items():
            async with await self._source.channel() as channel:  # its end puts them back
                deliveries = await self._take(channel, level, min(count, SAMPLE_MAX))
                for delivery in deliveries:
                    await self._foresee(planned(self._layout, level, delivery, now(), self._restarts))
            self._summary.unseen += max(0, count - len(deliveries))
            self._on_progress(Progress(level, len(deliveries), count))
        await self._destinations.close()
        self._summary.destinations = self._destinations.names
        return self._summary

    async def _counts(self) -> dict[int, int]:
        """Level -> messages that wait there, the highest level first."""
        counts = {}
        for level in reversed(range(self._layout.levels)):
            name = self._layout.level_name(level)
            async with await self._source.channel() as channel:
                try:
                    counts[level] = (await channel.declare_queue(name, passive=True)).message_count
                except ChannelClosed as error:
                    if error.code != NOT_FOUND:
                        raise
                    self._summary.missing.append(name)
        if not counts:
            raise LookupError(f"{NO_LAYOUT}: there is no queue {self._layout.level_name(0)!r}")
        return counts

    async def _level(self, level: int, channel: Channel, publishing: Channel, poisoning: Channel) -> None:
        # counted again: what was in a higher level at first may have come down meanwhile
        name = self._layout.level_name(level)
        total = left = (await channel.declare_queue(name, passive=True)).message_count
        kept = 0
        while left and kept < LEFT_MAX:
            deliveries = await self._take(channel, level, min(left, self._window))
            if not deliveries:
                break
            left -= len(deliveries)
            plans = [planned(self._layout, level, delivery, now(), self._restarts) for delivery in deliveries]
            reasons = await self._move(plans, name, publishing, poisoning)
            for delivery, reason in zip(deliveries, reasons, strict=True):
                if reason:
                    self._summary.left[reason] += 1
                    kept += 1
                else:
                    channel.ack(delivery.delivery_tag)
            self._on_progress(Progress(level, total - left, total))
        if kept and left:
            self._summary.left["it is behind messages that can't be moved"] += left

    async def _take(self, channel: Channel, level: int, count: int) -> list[Delivery]:
        """Up to ``count`` messages of the level, unacknowledged."""
        name = self._layout.level_name(level)
        taken: list[Delivery] = []
        while len(taken) < count:
            wanted = min(self._window, count - len(taken))
            answers = await asyncio.gather(*(channel.get(name) for _ in range(wanted)))
            found = [answer for answer in answers if answer is not None]
            taken += found
            if len(found) < wanted:
                break
        return taken

    async def _move(self, plans: list[Plan], queue: str, publishing: Channel, poisoning: Channel) -> list[str]:
        """Send them, and wait for the confirms: for each "", or why it has to stay."""
        for destination in {plan.destination for plan in plans if plan.destination}:
            await self._destinations.bind(destination)
        sent: list[asyncio.Future[None] | str] = []
        for plan in plans:
            if not plan.destination:
                sent.append(await self._poison(plan, queue, poisoning))
                continue
            reason = await self._destinations.bind(plan.destination)
            sent.append(reason or self._publish(plan, publishing))
        futures = [one for one in sent if not isinstance(one, str)]
        if futures:
            await asyncio.wait(futures)
        pairs = zip(plans, sent, strict=True)
        return [one if isinstance(one, str) else self._settled(plan, one) for plan, one in pairs]

    def _publish(self, plan: Plan, publishing: Channel) -> asyncio.Future[None] | str:
        try:
            exchange, key, properties = moved(plan, self._target_layout)
        except ValueError as error:
            return str(error)
        return publishing.publish(plan.delivery.body, exchange, key, properties, mandatory=True)

    async def _poison(self, plan: Plan, queue: str, poisoning: Channel) -> asyncio.Future[None]:
        if not self._has_poison_queue:
            await poisoning.declare_queue(self._poison_queue)
            self._has_poison_queue = True
        properties = poison(plan, queue)
        return poisoning.publish(plan.delivery.body, "", self._poison_queue, properties, mandatory=True)

    def _settled(self, plan: Plan, future: asyncio.Future[None]) -> str:
        error = future.exception()
        if isinstance(error, Unroutable):
            return f"nothing is bound for the destination {plan.destination!r}"
        if isinstance(error, PublishError):
            return "the broker refused it (basic.nack)"
        if error is not None:
            raise error
        self._count(plan)
        return ""

    async def _foresee(self, plan: Plan) -> None:
        reason = await self._destinations.look(plan.destination) if plan.destination else ""
        try:
            if plan.destination:
                moved(plan, self._target_layout)
        except ValueError as error:
            reason = reason or str(error)
        if reason:
            self._summary.left[reason] += 1
        else:
            self._count(plan)

    def _count(self, plan: Plan) -> None:
        self._summary.poisoned += not plan.destination
        self._summary.moved += bool(plan.destination)
        self._summary.due += bool(plan.destination) and not plan.remaining
