"""Moves the messages of one layout to another, on the same broker or on a second one.

A message is acknowledged at the source after the target has confirmed it. So none is lost, whichever connection or
process fails; only messages that were in flight at that time are duplicated, with the same message id. No message is
early, since the rest of a delay is rounded up and the new wait begins after the old one (source of the algorithm:
`delays migrate` and `delays transfer` of NServiceBus's rabbitmq-transport).
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
from leveret.delay.tools.destinations import DestinationBinding, Destinations
from leveret.delay.tools.plan import Plan, moved, planned, poison
from leveret.wire.errors import NOT_FOUND

WINDOW: Final = 256
"""How many messages are in flight at a time."""

QUORUM_WINDOW: Final = 32
"""How many messages from quorum queues are in flight at a time.

A channel of RabbitMQ sends this many commands to a quorum queue at once and keeps the others for later (its setting
quorum_commands_soft_limit). Acknowledgements beyond them are lost when the channel is closed, and the messages are
duplicated.
"""

LEFT_MAX: Final = 10_000
"""Number of messages of one level that cannot be moved after which the rest of the level is left, too."""

SAMPLE_MAX: Final = 1_000
"""How many messages of each level a dry run examines."""

NO_LAYOUT: Final = "no level of this layout exists"


@dataclass
class Progress:
    """Progress within a level: how many messages are done, of how many that it had at its start."""

    level: int
    done: int
    total: int


@dataclass
class Summary:
    """The result of a move, in numbers of messages.

    Attributes:
        moved: Messages that were moved.
        due: Those of them that had no wait left.
        poisoned: Messages that went to the poison queue.
        unseen: Messages that a dry run did not examine.
        left: Messages that stay at the source, by reason.
        missing: Names of the levels that do not exist.
        destinations: Names of the destinations.
    """

    moved: int = 0
    due: int = 0
    poisoned: int = 0
    unseen: int = 0
    left: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    destinations: list[str] = field(default_factory=list)


class Mover:
    """Moves messages from ``layout`` on ``source`` to ``target_layout`` on ``target``.

    Args:
        source: Connection to the source broker.
        layout: Layout on the source.
        target: Connection to the target broker; may be the same.
        target_layout: Layout on the target.
        poison_queue: Queue on the source for messages without a due time; declared when it is needed.
        binding: What to bind for each destination.
        restarts: Messages without a due time wait for their whole level again, in place of the poison queue.
        on_progress: Called after every batch.
    """

    def __init__(
        self,
        source: Connection,
        layout: Layout,
        target: Connection,
        target_layout: Layout,
        poison_queue: str,
        *,
        binding: DestinationBinding = DestinationBinding.AUTO,
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
        """Declare the target, then move level after level, the highest first.

        Messages that expire meanwhile enter lower levels and are moved there. From each level it takes no more messages
        than the level had at its start, so it ends even while others send.

        Raises:
            LookupError: The source has none of the levels.
            LayoutConflict: The target cannot be declared.
            ConnectionClosed: A connection was lost; run a new mover with new connections.
        """
        counts = await self._counts()
        await create(self._target, self._target_layout)
        try:
            async with await self._target.channel() as publishing, await self._source.channel() as poisoning:
                await publishing.confirm_select()
                await poisoning.confirm_select()
                for level in counts:
                    async with await self._source.channel() as channel:  # closing it requeues the messages that stay
                        await self._level(level, channel, publishing, poisoning)
        finally:
            await self._destinations.close()
        self._summary.destinations = self._destinations.names
        return self._summary

    async def dry_run(self) -> Summary:
        """Return what `run` would do, from the first thousand messages of each level. Declares nothing.

        The messages are requeued. They are marked as redelivered, and a quorum queue counts one more delivery.
        """
        for level, count in (await self._counts()).items():
            async with await self._source.channel() as channel:  # closing it requeues them
                deliveries = await self._take(channel, level, min(count, SAMPLE_MAX))
                for delivery in deliveries:
                    await self._foresee(planned(self._layout, level, delivery, now(), self._restarts))
            self._summary.unseen += max(0, count - len(deliveries))
            self._on_progress(Progress(level, len(deliveries), count))
        await self._destinations.close()
        self._summary.destinations = self._destinations.names
        return self._summary

    async def _counts(self) -> dict[int, int]:
        """Return the number of messages by level, the highest level first."""
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
        # counted again: messages of higher levels may have expired into this one meanwhile
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
        """Fetch up to ``count`` messages of the level, without acknowledging them."""
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
        """Send the messages and wait for their confirms; return for each "" or the reason why it stays."""
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
