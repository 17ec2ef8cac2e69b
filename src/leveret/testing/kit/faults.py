"""Fault injection for a broker in the test's process.

Each method starts a fault and returns it; it lasts until its `undo()`, or the end of a `with` block.

    with rabbit.faults.blocked():
        ...                             # publishers get connection.blocked
    fault = rabbit.faults.latency(50)
    fault.undo()

Faults that happen once, such as `drop`, return a count instead. All faults end with the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

if TYPE_CHECKING:
    from leveret.broker.peer import Peer
    from leveret.broker.queues.queue import Queue
    from leveret.testing.kit.fixture import BrokerFixture

CONNECTION_FORCED: Final = 320
PRECONDITION_FAILED: Final = 406


class Fault:
    """A fault that lasts until it is undone."""

    def __init__(self, faults: Faults, name: str, end: Callable[[], object]) -> None:
        self.name = name
        self._faults = faults
        self._end: Callable[[], object] | None = end
        faults.active.append(self)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<fault: {self.name}{'' if self._end else ', undone'}>"

    def undo(self) -> None:
        """End the fault. Does nothing if it has ended already."""
        end, self._end = self._end, None
        if end is not None:
            self._faults.active.remove(self)
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


class Faults:
    """The faults of one broker."""

    def __init__(self, fixture: BrokerFixture) -> None:
        self.active: list[Fault] = []  # faults that last, oldest first
        self._fixture = fixture

    def clear(self) -> None:
        """Undo all faults, but do not start a broker that is down."""
        for fault in reversed(list(self.active)):
            if fault.name == "down":
                self.active.remove(fault)
            else:
                fault.undo()

    # -- connections ---------------------------------------------------------------------------------------------------

    def drop(self, name: str | None = None) -> int:
        """Reset all connections, or those with this client-provided name. Returns their number."""
        return self._fixture.living().call(lambda: self._fixture.network.drop(name))

    def drop_at(
        self, step: str, nth: int = 1, *, when: Literal["before", "after"] = "after", name: str | None = None
    ) -> Fault:
        """Cut a connection at the nth occurrence of a step, counted from now.

        Args:
            step: a client's method (login, open, channel, declare, bind, consume, get, publish, ack, reject, nack,
                commit) or a broker's (confirm, deliver, commit-ok).
            nth: the occurrence, from 1.
            when: "before" loses the method; "after" lets it through but loses the answer, e.g. a publish is accepted
                and
                its publisher never learns of it.
            name: only connections with this client-provided name.

        Raises:
            ValueError: the step does not exist, or nth or when is wrong.
        """
        import difflib

        from leveret.testing.kit.network import Trip
        from leveret.testing.kit.steps import STEPS

        if step not in STEPS:
            near = difflib.get_close_matches(step, STEPS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the steps are {', '.join(STEPS)}"
            raise ValueError(f"unknown step {step!r}{hint}")
        if nth < 1 or when not in ("before", "after"):
            raise ValueError(f"nth must be at least 1, and when must be 'before' or 'after', not {nth} and {when!r}")
        network, trip = self._fixture.network, Trip(step, nth, name, when == "after")

        def disarm() -> None:
            if trip in network.trips:
                network.trips.remove(trip)

        fault = Fault(self, f"drop {when} {step} {nth}", lambda: self._on_loop(disarm))
        trip.fired = fault.undo
        self._on_loop(lambda: network.trips.append(trip))
        return fault

    def latency(self, ms: float) -> Fault:
        """Delay all data by `ms` milliseconds in each direction. Several such faults add up."""
        return self._network(f"latency {ms:g} ms", "delay_ms", ms)

    def not_reading(self) -> Fault:
        """Stop reading from sockets: clients that send much block when the socket buffers are full."""
        return self._network("not reading", "deaf", 1)

    def not_writing(self) -> Fault:
        """Hold back everything that the broker sends, until the fault is undone."""
        return self._network("not writing", "mute", 1)

    def _network(self, name: str, fault: str, amount: float) -> Fault:
        network = self._fixture.network

        def add(change: float) -> None:
            setattr(network, fault, getattr(network, fault) + change)
            network.change()

        self._on_loop(lambda: add(amount))
        return Fault(self, name, lambda: self._on_loop(lambda: add(-amount)))

    # -- what the broker does ------------------------------------------------------------------------------------------

    def blocked(self, resource: Literal["memory", "disk"] = "memory") -> Fault:
        """Raise the alarm of a resource: publishers get connection.blocked, and their sockets are not read any more."""
        if resource not in self._fixture.blocked:
            raise ValueError(f"the resource must be 'memory' or 'disk', not {resource!r}")

        def add(change: int) -> None:
            self._fixture.blocked[resource] += change
            broker_run = self._fixture.broker_run
            if broker_run is not None and not broker_run.is_over:
                broker_run.change(lambda: broker_run.server.limit(broker_run.server.alarms.limits))

        add(1)
        return Fault(self, f"blocked, low on {resource}", lambda: add(-1))

    def nack_publishes(self, queue: str | None = None, vhost: str = "/") -> Fault:
        """A queue, or all that are there now, takes no messages: confirm mode publishers get basic.nack for them."""
        from leveret.broker.queues.limits import QueueLimits
        from leveret.broker.queues.queue_settings import reconfigure
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()
        server = broker_run.server

        def refuse() -> list[Queue]:
            every = (found for host in server.broker.vhosts.values() for found in host.queues.values())
            queues = [found for found in every if not found.is_stream] if queue is None else []
            queues += [find_queue(server.broker, queue, vhost)] if queue is not None else []
            for found in queues:
                limits = QueueLimits(0, -1, "reject-publish")
                limits.keys = found.limits.keys if found.limits is not None else None
                found.limits = limits
                found.vhost.changed()
            return queues

        def accept() -> None:
            for found in refused:
                if not found.is_deleted:
                    reconfigure(found, found.effect, server.now_us())
                    found.vhost.changed()

        refused = broker_run.change(refuse)
        return Fault(self, "nack publishes", lambda: None if broker_run.is_over else broker_run.change(accept))

    def refuse_logins(self) -> Fault:
        """No password is right. Connections that are there stay."""
        from leveret.broker.storage.definitions import USER, Definition

        broker_run = self._fixture.living()
        broker = broker_run.server.broker

        def refuse() -> list[Definition]:
            users = list(broker.definitions.all(USER))
            for user in users:
                broker.definitions.put(USER, {**user, "password_hash": ""})
            return users

        def accept() -> None:
            broker.login_throttle.forgive()
            now = {user["name"]: user for user in broker.definitions.all(USER)}
            for user in users:
                current = now.get(user["name"])
                if current is not None and not current["password_hash"]:
                    broker.definitions.put(USER, {**current, "password_hash": user["password_hash"]})

        users = broker_run.change(refuse)
        return Fault(self, "refuse logins", lambda: None if broker_run.is_over else broker_run.change(accept))

    def cancel_consumers(self, queue: str, vhost: str = "/") -> int:
        """Cancel the consumers of a queue, as RabbitMQ does when a queue's node fails: clients get basic.cancel."""
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()

        def cancel() -> int:
            found = find_queue(broker_run.server.broker, queue, vhost)
            consumers = found.consumers.all()
            for consumer in consumers:
                consumer.channel.consumers.pop(consumer.tag, None)
                found.vhost.remove_consumer(consumer, broker_run.server.now_us())
                consumer.tell_cancelled()
            return len(consumers)

        return broker_run.change(cancel)

    def close_channels(
        self, code: int = PRECONDITION_FAILED, text: str = "closed by the test", *, name: str | None = None
    ) -> int:
        """Close all channels, or those of connections with this client-provided name; return their number.

        A hard error code (e.g. 541) closes the connections.
        """

        def close(peer: Peer) -> int:
            channels = list(peer.channels.values())
            for channel in channels:
                peer.close_channel(channel, code, text)
            return len(channels)

        return self._each(close, name)

    def close_connections(
        self, code: int = CONNECTION_FORCED, text: str = "closed by the test", *, name: str | None = None
    ) -> int:
        """Close all connections, or those with this client-provided name, with an error; return their number."""

        def close(peer: Peer) -> int:
            peer.close(code, text)
            return 1

        return self._each(close, name)

    def _each(self, close: Callable[[Peer], int], name: str | None) -> int:
        broker_run = self._fixture.living()
        lines = self._fixture.network.lines
        return broker_run.change(lambda: sum(close(line.peer) for line in list(lines) if name in (None, line.name)))

    # -- the disk ------------------------------------------------------------------------------------------------------

    def disk_full(self) -> Fault:
        """Fill up the disk: durable operations wait unconfirmed, and the disk alarm is raised."""
        return self._disk("disk full", "full", 1)

    def disk_broken(self) -> Fault:
        """Let syncs fail. The broker stops as soon as it notices; call start() after this fault has ended."""
        return self._disk("disk broken", "broken", 1)

    def disk_stalled(self) -> Fault:
        """Let syncs hang: durable messages are accepted, but not confirmed. A crash now loses them."""
        return self._disk("disk stalled", "stalled", 1)

    def slow_disk(self, ms: float) -> Fault:
        """Make each sync take `ms` milliseconds longer, which delays confirms. Several such faults add up."""
        return self._disk(f"slow disk, {ms:g} ms", "delay_ms", ms)

    def _disk(self, name: str, fault: str, amount: float) -> Fault:
        faults = self._fixture.disk_faults

        def add(change: float) -> None:
            def now() -> None:
                setattr(faults, fault, getattr(faults, fault) + change)

            self._on_loop(now)
            faults.change()

        def end() -> None:
            add(-amount)
            if fault == "full":
                self._find_room()

        add(amount)
        return Fault(self, name, end)

    def _find_room(self) -> None:
        """Let the broker check its disk space now; by itself it checks once a second."""
        broker_run = self._fixture.broker_run
        if broker_run is None or broker_run.is_over or self._fixture.disk_faults.full:
            return

        async def look() -> None:
            server = broker_run.server
            while not server.stopping.is_set() and not self._fixture.disk_faults.is_slow:
                server.look()
                await server.settled()
                if server.reserve.is_whole and (not server.broker.block_reason or any(self._fixture.blocked.values())):
                    return
                await asyncio.sleep(0.001)

        broker_run.wait(look())

    def _on_loop(self, function: Callable[[], Any]) -> None:
        """Call the function on the broker's loop, or here while the broker is down."""
        broker_run = self._fixture.broker_run
        if broker_run is None or broker_run.is_over:
            function()
        else:
            broker_run.call(function)
