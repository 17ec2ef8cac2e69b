"""One connection of a link to its upstream, from dialling to its end.

The literal table _STEPS lists the requests to the upstream, which are made one after the other. Any failure ends the
attempt, and the link makes another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.storage.positions import Positions
from leveret.broker.vhost import VHost
from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import Answer, ChannelCore
from leveret.client.protocol.errors import ChannelClosed, ClientError, ConnectionClosed, PublishError
from leveret.client.protocol.model import DeliverySink
from leveret.client.protocol.requests import Request
from leveret.client.protocol.waiter import Waiter
from leveret.federation import declaring
from leveret.federation import stages as at
from leveret.federation.bindings import BindingReceiver, Group, Grouped, UpstreamBinder
from leveret.federation.environment import Environment
from leveret.federation.link_transport import LinkTransport
from leveret.federation.memory import Memory
from leveret.federation.names import UPSTREAM_KIND, internal_exchange
from leveret.federation.plan import LinkPlan
from leveret.federation.rewriting import LinkOrigin
from leveret.federation.swap import Swap
from leveret.federation.transfer import Transfer
from leveret.federation.upstream import NO_ACK, ON_CONFIRM, ON_PUBLISH, SINGLE, UpstreamAddress
from leveret.wire.errors import ACCESS_REFUSED, COMMAND_INVALID, NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.method import Method
from leveret.wire.table import Value

CHECK_US: Final = 5_000_000
"""How often a running link checks that everything is still there, and how many messages wait."""
OUTDATED_US: Final = 500_000
"""The same interval while the upstream queue is to be replaced as soon as it is empty."""
RECORD_US: Final = 1_000
"""How often an attempt checks whether a record is on disk."""


class Owner(Protocol):
    """Callbacks of an attempt, implemented by the link."""

    def ready(self) -> None:
        """All bindings are made, and messages arrive."""

    def ended(self, reason: str, is_done: bool) -> None:
        """The attempt has ended. is_done: as requested, everything that it made on the upstream is deleted."""

    def dead_reply(self, name: str) -> None:
        """A message came with this reply-to, which means nothing on this side."""

    def swapped(self) -> None:
        """Another internal exchange has all bindings; memory.suffix says which."""


class Attempt:
    """One connection of a link."""

    def __init__(
        self, plan: LinkPlan, place: UpstreamAddress, vhost: VHost, exchange: Exchange, grouped: Grouped,
        positions: Positions, memory: Memory, environment: Environment, owner: Owner,
    ) -> None:  # fmt: skip
        # exchange: the federated one; memory: belongs to the owner, and is updated here
        self.state = at.CONNECTING
        self.place = place
        self.is_outdated = False  # the upstream queue has other arguments than the plan says
        self._plan = plan
        self._vhost = vhost
        self._exchange = exchange
        self._grouped = grouped
        self._positions = positions
        self._memory = memory
        self._owner = owner
        self._is_cleaning = False
        self._is_plain = False  # the internal exchange is a fanout
        self._objection = ""  # the upstream's error text for the last refused request
        self._active = ""  # suffix of the internal exchange with all bindings, or ""
        self._swap: Swap | None = None
        self._commands: ChannelCore[Any] | None = None  # for declarations
        self._stream: ChannelCore[Any] | None = None  # for bindings
        self._consumer: ChannelCore[Any] | None = None
        self.queue = memory.queue = plan.queue(place.address.vhost)
        self.key = memory.key = f"{place.address.vhost}/{self.queue}"
        self._tag = f"federation-link-{plan.id}"
        self._upstream_cluster = ""
        self._upstream_version = ""
        self._is_leveret = self._has_positions = False
        self._link_transport = LinkTransport(place, plan.connection_name, environment, self)
        self._core = self._link_transport.core
        self._alarms = self._link_transport.alarms

    # -- for the link --------------------------------------------------------------------------------------------------

    @property
    def unacknowledged(self) -> int:
        transfer = self._link_transport.transfer
        return transfer.unacknowledged if transfer is not None else 0

    @property
    def unbound(self) -> int:
        """How many bindings are not yet confirmed by the upstream."""
        return self._swap.unconfirmed if self._swap is not None else len(self._grouped)

    @property
    def connection(self) -> int:
        """The number of the direct connection, 0 if it is not open."""
        direct = self._link_transport.direct
        return int(direct.peer.number) if direct is not None else 0

    def counts(self) -> tuple[int, int, int, int]:
        """How many messages this attempt has published, found looped, found known, and rejected."""
        transfer = self._link_transport.transfer
        if transfer is None:
            return (0, 0, 0, 0)
        return int(transfer.messages), int(transfer.looped), int(transfer.known), int(transfer.rejected)

    def changed(self, group: Group, is_bound: bool) -> None:
        """Note that a group of bindings came or went; called within another turn."""
        if self._swap is not None and not self._is_cleaning:
            self._swap.changed(group, is_bound)
            if "flush" not in self._alarms:
                self._alarms.set("flush", 0, self._flush)

    def clean(self) -> None:
        """Delete what the link made on the upstream, except the upstream exchange; then end."""
        self._is_cleaning = True
        if self._core.error is None and self.state not in (at.CONNECTING, at.OVER):
            self._link_transport.leave()
            self._alarms.cancel("flush")
            self._enter(at.CLEANING)
            self._link_transport.pump()

    def close(self) -> None:
        """Close both connections, without calling the owner."""
        self.state = at.OVER
        self._link_transport.close()
        # they refer to this attempt, and the collector is off
        self._commands = self._stream = self._consumer = self._swap = None

    def _flush(self) -> None:
        """Send the changes of bindings of the last turn."""
        assert self._swap is not None
        self._swap.flush()
        self._link_transport.pump()

    # -- callbacks of the link transport -------------------------------------------------------------------------------

    def opened(self) -> None:
        """Continue after the upstream has accepted the connection and sent its properties."""
        properties = self._core.server_properties
        cluster = properties.get("cluster_name")
        self._upstream_cluster = cluster if isinstance(cluster, str) else ""
        self._upstream_version = repr((properties.get("product"), properties.get("version")))
        self._is_leveret = bool(properties.get("leveret_version"))
        self._has_positions = self._is_leveret and self._plan.upstream.ack_mode == ON_CONFIRM
        self._enter(at.CLEANING if self._is_cleaning else at.LOOKING)

    def moved(self) -> None:
        """Check whether the last messages of an outdated queue are safe now."""
        if self.state == at.EMPTYING:
            self._empty()

    def broken(self, reason: str) -> None:
        """End the attempt: the connections cannot be used any more."""
        self._end(reason)

    def dead_reply(self, name: str) -> None:
        """Pass the report on to the owner, which logs it once."""
        self._owner.dead_reply(name)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _enter(self, state: str) -> None:
        """Do what this state begins with: a request, or another action."""
        self.state = state
        step = _STEPS.get(state)
        if step is None:
            _ARRIVALS[state](self)
            return
        try:
            waiter = step.ask(self)
        except ClientError as error:  # the channel or the connection is closed
            self._end(f"{state}: {error}")
            return
        waiter.when_done(lambda: self._told(step, waiter))

    def _told(self, step: LinkStep, waiter: Waiter[Answer]) -> None:
        """Handle an answer, or a refusal, which has closed the channel."""
        if _STEPS.get(self.state) is not step:
            return
        error = waiter.error
        if error is None:
            if step.note is not None:
                step.note(self, waiter.result())
            self._enter(step.done)
            return
        code = error.code if isinstance(error, ChannelClosed | ConnectionClosed) else 0
        if code in step.refused:
            self._objection = str(error)
            self._enter(step.refused[code])
        else:
            self._end(f"{self.state}: {error}")

    def _ask(self, request: Request) -> Waiter[Answer]:
        """Send a request on the channel for commands, or on a new one if a refusal has closed it."""
        return self._channel().request(request)

    def _channel(self) -> ChannelCore[Any]:
        channel = self._commands
        if channel is None or channel.error is not None:
            channel = self._commands = self._open_channel()
        return channel

    def _open_channel(self) -> ChannelCore[Any]:
        channel: ChannelCore[Any] = self._core.open_channel(_no_publish, self._channel_failed)
        channel.request(requests.open_channel())
        return channel

    def _channel_failed(self, error: ClientError) -> None:
        """Handle the end of a channel. The steps handle their own refusals; at any other time something was deleted."""
        in_use = [self._stream]
        if self.state in (at.RUNNING, at.EMPTYING):
            in_use += [self._commands, self._consumer]
        is_ours = any(each is not None and each.error is not None for each in in_use)
        if is_ours and self.state != at.CLEANING and self._core.error is None:
            self._end(f"{self.state}: {error}")

    def _post(self, request: Request) -> None:
        """Send a request without asking for an answer."""
        self._core.send(declaring.frame(self._channel().number, request, True))

    def _internal(self, suffix: str) -> str:
        return internal_exchange(self.queue, suffix)

    def _new_suffix(self) -> str:
        return _OTHER[self._active]

    # requests

    def _look(self) -> Waiter[Answer]:
        return self._ask(declaring.exists(self._plan.upstream.exchange))

    def _looked(self) -> None:
        """Go on after the upstream exchange was found; it may be of another type.

        To find out, it is declared again, but only once, since a type that the upstream does not know costs the
        connection.
        """
        if self._memory.is_compared:
            self._enter(at.QUEUEING)
        else:
            self._memory.is_compared = True
            self._enter(at.COMPARING)

    def _mixed(self) -> None:
        if "'type'" in self._objection:
            self._memory.warning = f"exchanges of different types route differently: {self._objection}"
        self._enter(at.QUEUEING)

    def _declare(self) -> Waiter[Answer]:
        return self._ask(declaring.upstream_exchange(self._plan, self._exchange))

    def _declare_queue(self) -> Waiter[Answer]:
        return self._ask(declaring.upstream_queue(self._plan, self.queue, self._is_leveret))

    def _look_at_queue(self) -> Waiter[Answer]:
        return self._ask(requests.declare_queue(self.queue, True, False, False, True, None))

    def _seek(self) -> None:
        """Find the current internal exchange.

        A refusal is a line in the upstream's log. Where no exchange is expected, it is therefore deleted if unused,
        which is refused only if it exists.
        """
        self._enter(at.PROBING if self._memory.is_known else at.PROBING_BY_DELETE)

    def _probe(self, suffix: str) -> Waiter[Answer]:
        self._active = suffix
        return self._ask(declaring.exists(self._internal(suffix)))

    def _probe_by_delete(self, suffix: str) -> Waiter[Answer]:
        self._active = suffix
        return self._ask(requests.delete_exchange(self._internal(suffix), True))

    def _remember(self) -> None:
        """Record which internal exchange has all bindings, before there are two, and a crash leaves only the record to
        tell them apart. The swap may have been the last thing that an earlier attempt did."""
        memory = self._memory
        if not memory.is_known or memory.suffix != self._active:
            memory.suffix, memory.is_known = self._active, True
            self._owner.swapped()
        self._await_record()

    def _await_record(self) -> None:
        log = self._vhost.log
        if self._memory.batch <= log.synced:
            self._enter(at.REPLACING)
        else:
            log.is_awaited = True
            self._alarms.set("record", RECORD_US, self._look_for_record)

    def _look_for_record(self) -> None:
        if self.state == at.REMEMBERING:
            self._await_record()
            self._link_transport.pump()

    def _replace(self) -> Waiter[Answer]:
        """Declare the new internal exchange, after deleting what is left of an earlier, incomplete one."""
        name = self._internal(self._new_suffix())
        self._post(requests.delete_exchange(name, False))
        self._is_plain = self._memory.lacks == self._upstream_version
        kind = declaring.PLAIN_KIND if self._is_plain else UPSTREAM_KIND
        return self._ask(declaring.internal_exchange(self._plan, name, kind))

    def _lacks(self) -> None:
        """Go on if the upstream lacks the exchange type: RabbitMQ 3.x then closes the connection, 4.x the channel."""
        if self._is_plain:
            self._end(self._objection)
            return
        self._memory.lacks = self._upstream_version
        if self._core.error is None:
            self._enter(at.REPLACING)
        else:
            self._end(
                f"the upstream has no exchange type {UPSTREAM_KIND} ({self._objection}); the link will use a "
                "fanout exchange instead"
            )

    def _reuse(self) -> None:
        """Use the queue that exists with other arguments; end if it could never be declared with these."""
        if "inequivalent" in self._objection:
            self.is_outdated = True
            self._enter(at.REUSING)
        else:
            self._end(self._objection)

    def _first(self) -> None:
        self._active = ""
        self._enter(at.REPLACING)

    def _consume(self) -> Waiter[Answer]:
        """Open the direct connection, and consume from the upstream queue."""
        plan, upstream = self._plan, self._plan.upstream
        has_confirms, has_acks = upstream.ack_mode == ON_CONFIRM, upstream.ack_mode != NO_ACK
        direct = self._link_transport.enter(self._vhost, plan.connection_name, has_confirms)
        direct.peer.position = self._positions.of(self.key)
        channel = self._consumer = self._open_channel()
        origin = LinkOrigin(self.place.shown, upstream.exchange, self._upstream_cluster, self.place.address.vhost)
        transfer = self._link_transport.transfer = Transfer(
            has_acks, upstream.ack_mode == ON_PUBLISH, upstream.max_hops, plan.cluster, plan.vhost, plan.exchange,
            origin, upstream.trust_user_id, direct.peer, self._has_positions, self._tag, channel.number,
        )  # fmt: skip
        self._core.deliveries = transfer
        if has_acks:
            channel.request(requests.qos(upstream.prefetch_count, False))
        return self._subscribe(channel)

    def _subscribe(self, channel: ChannelCore[Any]) -> Waiter[Answer]:
        transfer = self._link_transport.transfer
        assert transfer is not None
        channel.add_sink(DeliverySink(self._tag, transfer.deliver, self._consumer_ended))
        arguments: dict[str, Value] = {declaring.POSITIONS: True} if self._has_positions else {}
        no_ack = self._plan.upstream.ack_mode == NO_ACK
        return channel.request(requests.consume(self.queue, self._tag, no_ack, False, arguments))

    def _consumer_ended(self, error: ClientError) -> None:
        if self.state != at.OVER and self._core.error is None:
            self._end(f"no more messages from the upstream queue: {error}")

    # binding

    def _bind(self) -> None:
        """Bind the new internal exchange with all bindings."""
        if self._plan.upstream.channel_use_mode == SINGLE:
            self._channel().close()  # the one that a refusal could have closed, before the consumer's serves for all
            self._commands = self._consumer
        channel = self._stream = self._channel()
        old = self._binder(channel, self._active) if self._active else None
        new = self._binder(channel, self._new_suffix())
        asks = not self._plan.upstream.bind_nowait
        self._swap = Swap(channel, self._core.send, self._grouped, self.queue, new, old, asks)
        self._bind_slice()

    def _binder(self, channel: ChannelCore[Any], suffix: str) -> UpstreamBinder:
        plan, there = self._plan, (self._upstream_cluster, self.place.address.vhost)
        bounds = BindingReceiver(plan.cluster, plan.vhost, plan.exchange, suffix, plan.upstream.max_hops, there)
        return UpstreamBinder(channel.number, self._internal(suffix), plan.upstream.exchange, bounds)

    def _bind_slice(self) -> None:
        if self.state != at.BINDING:
            return
        assert self._swap is not None
        if not self._swap.step(self._bound):
            self._alarms.set("slice", 0, self._bind_slice)
        self._link_transport.pump()

    def _bound(self) -> None:
        """Go on when the upstream has all bindings, and the old internal exchange is deleted."""
        if self.state != at.BINDING:
            return
        self._active = self._memory.suffix = self._new_suffix()
        self._memory.is_known = True
        self._owner.swapped()
        self._enter(at.RUNNING)

    # running

    def _run(self) -> None:
        self._next_check(0 if self._memory.lag == 0 else OUTDATED_US)
        self._owner.ready()

    def _next_check(self, outdated_us: int) -> None:
        """Schedule the next check. outdated_us: when, if the queue is to be replaced as soon as it is empty."""
        self._alarms.set("check", outdated_us if self.is_outdated else CHECK_US, self._check)

    def _check(self) -> None:
        """Check that everything is still there, and how many messages wait."""
        if self.state != at.RUNNING:
            return
        assert self._swap is not None
        self._swap.again()
        waiter = self._look_at_queue()
        waiter.when_done(lambda: self._checked(waiter))
        self._link_transport.pump()

    def _checked(self, waiter: Waiter[Answer]) -> None:
        if self.state != at.RUNNING or waiter.error is not None:
            return
        self._count(waiter.result())
        if self.is_outdated and self._memory.lag == 0 and self.unacknowledged == 0:
            self._enter(at.CANCELLING)
        else:
            self._next_check(OUTDATED_US)

    def _count(self, answer: Answer) -> None:
        assert isinstance(answer, Method)
        self._memory.lag = answer.number("message_count")

    # replacing an outdated upstream queue

    def _cancel(self) -> Waiter[Answer]:
        assert self._consumer is not None
        return self._consumer.request(requests.cancel(self._tag))

    def _empty(self) -> None:
        """Replace the queue once everything from it is safe: its unacknowledged messages go with it."""
        if self.unacknowledged == 0:
            self._enter(at.RENEWING)

    def _renew(self) -> Waiter[Answer]:
        """Delete the queue if it is still empty, and declare it with the right arguments, in one pipeline.

        leveret handles that in one turn. Meanwhile a binding to another exchange keeps the internal one alive, with all
        of its bindings.
        """
        internal, other = self._internal(self._active), self._internal(self._new_suffix())
        self._commands = None  # a refusal closes the channel, and the consumer uses the present one
        self._post(requests.declare_exchange(other, declaring.PLAIN_KIND, False, True, True, False, None))
        self._post(requests.bind_exchange(other, internal, "", None))
        self._ask(requests.delete_queue(self.queue, True, True))
        waiter = self._declare_queue()
        self._post(requests.bind_queue(self.queue, internal, "", None))
        self._post(requests.delete_exchange(other, False))
        return waiter

    def _renewed(self, answer: Answer) -> None:
        self.is_outdated = False
        self._count(answer)

    def _consume_again(self) -> Waiter[Answer]:
        if self.is_outdated:  # a message came at the last moment, so the queue is replaced another time
            self._post(requests.delete_exchange(self._internal(self._new_suffix()), False))
        assert self._consumer is not None
        self._consumer.check_open()
        return self._subscribe(self._consumer)

    # ending

    def _clean(self) -> Waiter[Answer]:
        """Delete the queue, with the messages that are still routed to it, then both internal exchanges."""
        self._commands = None  # the present channel may be waiting for a refusal
        self._post(requests.delete_queue(self.queue, False, False))
        self._post(requests.delete_exchange(self._internal("A"), False))
        return self._ask(requests.delete_exchange(self._internal("B"), False))

    def _cleaned(self) -> None:
        self._end("", True)

    def _end(self, reason: str, is_done: bool = False) -> None:
        """Close, and call the owner, unless that was done before."""
        if self.state != at.OVER:
            self.close()
            self._owner.ended(reason, is_done)


class LinkStep(NamedTuple):
    """A request and its outcomes.

    Attributes:
        ask: Sends the request.
        done: The state after its answer.
        refused: The state after a refusal, by reply code; other codes end the attempt.
        note: Called with the answer.
    """

    ask: Callable[[Attempt], Waiter[Answer]]
    done: str
    refused: dict[int, str]
    note: Callable[[Attempt, Answer], None] | None = None


_STEPS: Final[dict[str, LinkStep]] = {
    at.LOOKING: LinkStep(Attempt._look, at.LOOKED, {NOT_FOUND: at.DECLARING}),
    at.COMPARING: LinkStep(Attempt._declare, at.QUEUEING, {PRECONDITION_FAILED: at.MIXED, ACCESS_REFUSED: at.QUEUEING}),
    at.DECLARING: LinkStep(Attempt._declare, at.QUEUEING, {}),
    at.QUEUEING: LinkStep(Attempt._declare_queue, at.CONSUMING, {PRECONDITION_FAILED: at.OBJECTED}, Attempt._count),
    at.REUSING: LinkStep(Attempt._look_at_queue, at.CONSUMING, {}, Attempt._count),
    # before the internal exchanges are changed: an older connection is closed now, and what it has sent for them, and
    # a network has held up, has no effect
    at.CONSUMING: LinkStep(Attempt._consume, at.SEEKING, {}),
    at.PROBING: LinkStep(lambda self: self._probe(self._memory.suffix), at.REMEMBERING, {NOT_FOUND: at.PROBING_OTHER}),
    at.PROBING_OTHER: LinkStep(
        lambda self: self._probe(_OTHER[self._memory.suffix]), at.REMEMBERING, {NOT_FOUND: at.FIRST}
    ),
    at.PROBING_BY_DELETE: LinkStep(
        lambda self: self._probe_by_delete("A"), at.PROBING_OTHER_BY_DELETE, {PRECONDITION_FAILED: at.REMEMBERING}
    ),
    at.PROBING_OTHER_BY_DELETE: LinkStep(
        lambda self: self._probe_by_delete("B"), at.FIRST, {PRECONDITION_FAILED: at.REMEMBERING}
    ),
    at.REPLACING: LinkStep(
        Attempt._replace, at.BINDING, {COMMAND_INVALID: at.LACKING, PRECONDITION_FAILED: at.LACKING}
    ),
    at.CANCELLING: LinkStep(Attempt._cancel, at.EMPTYING, {}),
    at.RENEWING: LinkStep(Attempt._renew, at.RECONSUMING, {PRECONDITION_FAILED: at.RECONSUMING}, Attempt._renewed),
    at.RECONSUMING: LinkStep(Attempt._consume_again, at.RUNNING, {}),
    at.CLEANING: LinkStep(Attempt._clean, at.CLEANED, {}),
}
_ARRIVALS: Final[dict[str, Callable[[Attempt], None]]] = {
    at.LOOKED: Attempt._looked,
    at.SEEKING: Attempt._seek,
    at.MIXED: Attempt._mixed,
    at.OBJECTED: Attempt._reuse,
    at.FIRST: Attempt._first,
    at.REMEMBERING: Attempt._remember,
    at.LACKING: Attempt._lacks,
    at.BINDING: Attempt._bind,
    at.RUNNING: Attempt._run,
    at.EMPTYING: Attempt._empty,
    at.CLEANED: Attempt._cleaned,
}
_OTHER: Final[dict[str, str]] = {"": "A", "A": "B", "B": "A"}


def _no_publish(token: Any, error: PublishError | None) -> None:
    """Do nothing: no message is published upstream."""
