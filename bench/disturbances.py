"""Disturbances by other clients, for cliffs.py: what they do while two clients are measured.

Each disturbance is a context manager: the code before its yield runs before the window, the function that it yields in
the middle of the window, and the rest after it. So a queue of ten million messages is filled before the window, and
only its deletion is measured.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.synchronize import Event
from typing import Any, NamedTuple

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, Properties
from leveret.client.protocol.publishing import PublishEncoder
from leveret.control.calls.blocking import ControlClient
from leveret.testing.processes import ServerProcess
from leveret.wire import grammar
from leveret.wire.method import method_frame
from scenarios import DURABLE
from victims import aside, ended, step_back

MANY = 10_000_000
MILLION = 1_000_000
HUNDRED_THOUSAND = 100_000
CHUNK = 1000
FRAME_OCTETS = 131072
PAUSE_MS_MAX = 10.0
QUEUE = "disturbance"
SPAWN = multiprocessing.get_context("fork")

Act = Callable[[], None]


class Disturbance(NamedTuple):
    meaning: str
    # takes the broker and the window's seconds
    begin: Callable[[ServerProcess, float], AbstractContextManager[Act]]
    rounds: int = 3  # at most this many, for disturbances that take long
    leveret_only: bool = False
    # longer pauses are cliffs; docs/internals/noisy-neighbours.md explains exceptions
    pause_ms_max: float = PAUSE_MS_MAX


# -- queues and how they are filled ------------------------------------------------------------------------------------


def frames(count: int, persistent: bool) -> bytes:
    """Return frames of `count` publishes. Consecutive ones differ, so a broker cannot batch them as identical."""
    encoder = PublishEncoder(1, FRAME_OCTETS)
    properties = Properties(delivery_mode=2) if persistent else None
    return b"".join(encoder.encode(bytes(16 + number % 2), "", QUEUE, properties, False) for number in range(count))


def fill(channel: BlockingChannel, count: int, persistent: bool = False) -> None:
    """Publish `count` messages to the queue, and return when they are in it."""
    chunk = frames(CHUNK, persistent)
    for _ in range(count // CHUNK):
        channel.publish_frames(chunk, CHUNK)
    channel.flush()
    while channel.declare_queue(QUEUE, passive=True).message_count < count:
        time.sleep(0.01)


@contextmanager
def queue(broker: ServerProcess, count: int, durable: bool, **arguments: Any) -> Iterator[BlockingChannel]:
    """Declare and fill a queue, with persistent messages if it is durable; delete it at the end."""
    with BlockingConnection(broker.url, heartbeat_s=0, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue(QUEUE, durable=durable, arguments=arguments)
        fill(channel, count, durable)
        yield channel
        channel.delete_queue(QUEUE)


@contextmanager
def in_child(work: Callable[[str, Event, Event], None], url: str) -> Iterator[tuple[Event, Any]]:
    """Run `work` in another process, wait until it is ready, and end it afterwards."""
    ready, over = SPAWN.Event(), SPAWN.Event()
    child = SPAWN.Process(target=work, args=(url, ready, over), daemon=True)
    child.start()
    ready.wait()
    try:
        yield over, child
    finally:
        over.set()
        child.join()


def nothing() -> None:
    """Do nothing: the state set up before the window is the disturbance."""


# -- the disturbances --------------------------------------------------------------------------------------------------


@contextmanager
def waiting(broker: ServerProcess, seconds: float, durable: bool) -> Iterator[Act]:
    """Keep ten million messages in another queue."""
    with queue(broker, MANY, durable):
        yield nothing


def consume_slowly(url: str, ready: Event, over: Event) -> None:
    """Consume one message per millisecond, with a prefetch limit of a hundred."""
    step_back()
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.qos(100)
        channel.consume(QUEUE)
        ready.set()
        while not over.is_set():
            delivery = channel.next_delivery(0.1)
            if delivery is not None:
                channel.ack(delivery.delivery_tag)
                channel.flush()
            time.sleep(0.001)


@contextmanager
def behind_a_consumer(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    with queue(broker, HUNDRED_THOUSAND, False), in_child(consume_slowly, broker.url):
        yield nothing


@contextmanager
def unread(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    """Let a consumer without a prefetch limit stop reading its socket."""

    def consume(url: str, ready: Event, over: Event) -> None:
        step_back()
        with BlockingConnection(url, heartbeat_s=0, reconnect=False) as connection:
            connection.channel().consume(QUEUE, no_ack=True)
            ready.set()
            over.wait()

    with queue(broker, 4 * HUNDRED_THOUSAND, False), in_child(consume, broker.url):
        yield nothing


@contextmanager
def loading(broker: ServerProcess, *mode: str) -> Iterator[Act]:
    """Run a load of amqpload during the whole window."""
    processes = []
    yield lambda: processes.append(aside(*mode, "-port", str(broker.port)))
    for process in processes:
        ended(process)


def paging_out(broker: ServerProcess, seconds: float) -> AbstractContextManager[Act]:
    count = str(int(200_000 * seconds))
    return loading(broker, "publish-only", "-rate", "200000", "-batch", "20", "-count", count, "-no-drain")


@contextmanager
def read_back(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    """Deliver two million messages, most of them on disk, to a consumer that takes them as fast as they arrive."""
    with queue(broker, 2_000_000, False):
        processes = []
        yield lambda: processes.append(
            aside("drain", "-queue", QUEUE, "-count", "2000000", "-keep", "-port", str(broker.port))
        )
        for process in processes:
            ended(process)


def confirms(broker: ServerProcess, seconds: float) -> AbstractContextManager[Act]:
    load = f"throughput {DURABLE} -confirm 1000 -warmup 0".split()
    return loading(broker, *load, "-seconds", str(seconds))


@contextmanager
def purge(broker: ServerProcess, seconds: float, durable: bool) -> Iterator[Act]:
    with queue(broker, MANY, durable) as channel:
        yield lambda: nothing_but(channel.purge_queue(QUEUE))


@contextmanager
def delete(broker: ServerProcess, seconds: float, durable: bool) -> Iterator[Act]:
    with queue(broker, MANY, durable) as channel:
        yield lambda: nothing_but(channel.delete_queue(QUEUE))


@contextmanager
def unbinding(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    """Delete a queue with a million bindings, each with a distinct word."""
    with queue(broker, 0, False) as channel:
        for first in range(0, MILLION, CHUNK):
            methods = [
                method_frame(
                    1, grammar.QUEUE_BIND, queue=QUEUE, exchange="amq.topic", routing_key=f"k.{number}", no_wait=True
                )
                for number in range(first, first + CHUNK)
            ]
            channel.publish_frames(b"".join(methods), 0)
        channel.flush()
        channel.declare_queue(QUEUE, passive=True)
        yield lambda: nothing_but(channel.delete_queue(QUEUE))


def nothing_but(answer: object) -> None:
    """Discard the answer, to fit the type `Act`."""


def definitions(queues: int, users: int) -> dict[str, Any]:
    """Return a definitions file with this many queues, a binding for each, and users."""
    names = [f"imported-{number}" for number in range(queues)]
    hashed = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # test12, from RabbitMQ's documentation
    return {
        "users": [{"name": f"user-{number}", "password_hash": hashed, "tags": ""} for number in range(users)],
        "queues": [
            {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 1000}}
            for name in names
        ],
        "bindings": [
            {
                "source": "amq.topic", "vhost": "/", "destination": name, "destination_type": "queue",
                "routing_key": f"{name}.#", "arguments": {},
            }
            for name in names
        ],
    }  # fmt: skip


def control(broker: ServerProcess) -> ControlClient:
    return ControlClient(str(broker.data_dir))


@contextmanager
def importing(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    wanted = definitions(5000, 500)
    with control(broker) as client:
        yield lambda: nothing_but(client.call("import_definitions", definitions=wanted))
        for each in wanted["queues"]:
            client.call("delete_queue", vhost="/", name=each["name"])
        for each in wanted["users"]:
            client.call("delete_user", name=each["name"])


@contextmanager
def listing(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    with control(broker) as client:
        if len(client.call("list_queues", columns=["name"])) < 50_000:
            client.call("import_definitions", definitions=definitions(50_000, 0))
        yield lambda: nothing_but(client.call("list_queues"))


@contextmanager
def new_journal_file(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    """Make the journal begin new files while 50,000 durable queues are declared."""
    with listing(broker, seconds):
        payload = bytes(1 << 20)
        with BlockingConnection(broker.url, reconnect=False) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.declare_queue(QUEUE, durable=True)

            def publish() -> None:
                for _ in range(150):
                    channel.publish(payload, "", QUEUE, Properties(delivery_mode=2))
                    channel.wait_for_confirms()
                    channel.get(QUEUE, no_ack=True)

            yield publish


@contextmanager
def idle(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    where = ["-count", "1000", "-hold", str(seconds + 1), "-port", str(broker.port)]
    process = aside("connections", *where)
    time.sleep(1)
    yield nothing
    ended(process)


def connecting(broker: ServerProcess, seconds: float) -> AbstractContextManager[Act]:
    return loading(broker, "connections", "-count", "1000", "-concurrency", "250")


def hoard(url: str, ready: Event, over: Event) -> None:
    """Take all messages and acknowledge none."""
    step_back()
    connection = BlockingConnection(url, heartbeat_s=0, reconnect=False)
    channel = connection.channel()
    channel.consume(QUEUE)
    taken = 0
    while taken < HUNDRED_THOUSAND:
        taken += len(channel.deliveries(HUNDRED_THOUSAND, 10))
    ready.set()
    over.wait()
    os._exit(0)  # simulates a crash


@contextmanager
def dying(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    with queue(broker, HUNDRED_THOUSAND, True), in_child(hoard, broker.url) as (over, _):
        yield over.set


@contextmanager
def settling(broker: ServerProcess, seconds: float, is_ack: bool) -> Iterator[Act]:
    """Send one basic.ack or basic.nack for 100,000 messages."""
    with queue(broker, HUNDRED_THOUSAND, True) as channel:
        tag = channel.consume(QUEUE)
        taken = 0
        while taken < HUNDRED_THOUSAND:
            taken += len(channel.deliveries(HUNDRED_THOUSAND, 10))
        channel.cancel(tag)

        def settle() -> None:
            (channel.ack if is_ack else channel.nack)(0, multiple=True)
            channel.flush()

        yield settle


@contextmanager
def expiring(broker: ServerProcess, seconds: float, durable: bool = False) -> Iterator[Act]:
    """Queue a million expired messages behind one without a TTL: when that is taken, all of them expire."""
    with queue(broker, 0, durable) as channel:
        channel.publish(b"", "", QUEUE)
        encoder = PublishEncoder(1, FRAME_OCTETS)
        properties = Properties(expiration="1", delivery_mode=2 if durable else 1)
        made = (encoder.encode(bytes(16 + number % 2), "", QUEUE, properties, False) for number in range(CHUNK))
        chunk = b"".join(made)
        for _ in range(MILLION // CHUNK):
            channel.publish_frames(chunk, CHUNK)
        yield lambda: nothing_but(channel.get(QUEUE, no_ack=True))


@contextmanager
def wildcards(broker: ServerProcess, seconds: float) -> Iterator[Act]:
    """Bind up to 5,000 patterns of 122 words of #, * and a, as the broker allows; publish keys that match far into
    all."""
    chance = random.Random(1)
    bound = 0
    with BlockingConnection(broker.url, heartbeat_s=0, reconnect=False) as connection:
        setting_up = connection.channel()
        setting_up.declare_exchange(QUEUE, kind="topic", durable=False)
        setting_up.declare_queue(QUEUE, durable=False)
        binding = connection.channel()
        with suppress(ChannelClosed):
            for bound in range(5000):  # noqa: B007
                binding.bind_queue(QUEUE, QUEUE, ".".join(chance.choices("#*a", k=122)))
        print(f"{bound} patterns", file=sys.stderr)

        def act() -> None:
            for size in range(40, 122):
                setting_up.publish(b"", QUEUE, ".".join("a" * size))
            setting_up.flush()

        yield act
        setting_up.delete_queue(QUEUE)
        setting_up.delete_exchange(QUEUE)


DISTURBANCES = {
    "backlog-100k": Disturbance("100,000 messages behind a slow consumer", behind_a_consumer),
    "unread": Disturbance("a consumer does not read its socket", unread),
    "ready-10m": Disturbance("10 million transient messages in a queue", lambda b, s: waiting(b, s, False), 1),
    "durable-10m": Disturbance("10 million persistent messages in a queue", lambda b, s: waiting(b, s, True), 1),
    "paging-out": Disturbance("200,000 msg/s into a queue that goes to the disk", paging_out),
    "paging-in": Disturbance("2 million messages are read back and consumed", read_back),
    "confirm-1000": Disturbance("a persistent stream with 1,000 unconfirmed", confirms),
    "purge-10m": Disturbance("purge of 10 million transient messages", lambda b, s: purge(b, s, False), 2),
    "purge-durable": Disturbance("purge of 10 million persistent messages", lambda b, s: purge(b, s, True), 2),
    "delete-10m": Disturbance("deletion of a queue with 10 million", lambda b, s: delete(b, s, False), 2),
    "delete-durable": Disturbance("deletion with 10 million persistent ones", lambda b, s: delete(b, s, True), 2),
    "delete-bindings": Disturbance(
        "deletion of a queue with a million bindings", unbinding, 2, leveret_only=True, pause_ms_max=15
    ),
    "import": Disturbance(
        "import of 5,000 queues, 5,000 bindings, 500 users", importing, leveret_only=True, pause_ms_max=30
    ),
    "idle-1000": Disturbance("1,000 idle connections", idle),
    "connect-1000": Disturbance("1,000 connections, 250 at once", connecting, pause_ms_max=40),
    "dead-consumer": Disturbance("a consumer dies with 100,000 unacknowledged", dying),
    "ack-100k": Disturbance("one ack for 100,000 messages", lambda b, s: settling(b, s, True)),
    "nack-100k": Disturbance("one nack for 100,000 messages", lambda b, s: settling(b, s, False)),
    "patterns-5k": Disturbance("5,000 topic patterns of 122 words full of wildcards, and 82 keys", wildcards),
    "expiry-1m": Disturbance("a million messages expire at one instant", expiring),
    "list-50k": Disturbance("50,000 queues are listed", listing, leveret_only=True),
    "journal-50k": Disturbance(
        "new journal files with 50,000 queues", new_journal_file, leveret_only=True, pause_ms_max=100
    ),
}
