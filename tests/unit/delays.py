"""A delayed exchange "d" and a durable queue "q" behind it, on a bench, or in a rig whose clock survives restarts."""

from __future__ import annotations

from leveret.broker.delayed.schedule import Schedule
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.table import Value

from .rig import FILE_SIZE, Rig
from .support import Bench, Client


def declare(client: Client, name: str = "d", kind: str = "direct", durable: bool = True, **arguments: object) -> None:
    given = {"x-delayed-type": kind, **{key.replace("_", "-"): value for key, value in arguments.items()}}
    client.send(
        1, grammar.EXCHANGE_DECLARE, exchange=name, type="x-delayed-message", durable=durable, arguments=given
    )


def bind(client: Client, queue: str = "q", exchange: str = "d", key: str = "k", durable: bool = True) -> None:
    client.send(1, grammar.QUEUE_DECLARE, queue=queue, durable=durable)
    client.send(1, grammar.QUEUE_BIND, queue=queue, exchange=exchange, routing_key=key)


def opened(bench: Bench, **values: object) -> Client:
    client = bench.connect()
    declare(client, **values)  # type: ignore[arg-type]
    bind(client)
    bench.sync()
    client.frames()
    return client


def send(client: Client, body: bytes, delay_ms: Value, key: str = "k", exchange: str = "d", **values: object) -> None:
    client.publish(key, body, exchange=exchange, headers={"x-delay": delay_ms}, **{"delivery_mode": 2, **values})


def fetch(client: Client, queue: str = "q") -> list[bytes]:
    """Consume all messages of a queue, and return their bodies."""
    client.bench.sync()
    client.frames()
    client.send(1, grammar.BASIC_CONSUME, queue=queue, no_ack=True, consumer_tag=queue)
    bodies = client.bodies()
    client.send(1, grammar.BASIC_CANCEL, consumer_tag=queue)
    client.frames()
    return bodies


def schedule_of(bench: Bench) -> Schedule:
    return bench.broker.vhosts["/"].schedules["d"]


class Site:
    """A rig and a client. The clock goes on over crashes, and every timer runs at its time."""

    def __init__(
        self, octets_max: int = 1 << 30, file_size: int = FILE_SIZE, disk: MemoryDisk | None = None
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.octets_max = octets_max
        self.file_size = file_size
        self.rig = Rig(self.disk, file_size=file_size, octets_max=octets_max)
        self.client = self.rig.bench.connect()
        declare(self.client)
        bind(self.client)
        self.save()

    @property
    def bench(self) -> Bench:
        return self.rig.bench

    @property
    def now_us(self) -> int:
        return self.bench.now_us

    @property
    def schedule(self) -> Schedule:
        return schedule_of(self.bench)

    def save(self) -> None:
        self.rig.write()
        self.client.frames()

    def page(self) -> None:
        self.save()
        self.rig.page()

    def pass_time(self, us: int) -> None:
        end_us = self.now_us + us
        while 0 < (next_us := self.bench.broker.timers.next_us()) <= end_us:
            self.bench.now_us = max(self.now_us, next_us)
            self.bench.broker.run_timers(self.now_us)
            self.save()
        self.bench.now_us = end_us

    def restart(self, is_orderly: bool = False, after_us: int = 0) -> None:
        now_us = self.now_us + after_us
        if is_orderly:
            self.client.peer.lost(self.now_us)
            self.bench.broker.stop()
        self.rig.write()
        self.disk.crash()
        self.rig = Rig(self.disk, file_size=self.file_size, octets_max=self.octets_max)
        self.bench.now_us = now_us
        while 0 < self.bench.broker.timers.next_us() <= now_us:  # before any client connects
            self.bench.broker.run_timers(now_us)
            self.rig.write()
        self.client = self.bench.connect()

    def fetch(self, queue: str = "q") -> list[bytes]:
        self.save()
        found = fetch(self.client, queue)
        self.save()
        return found
