"""A broker in this process, for a test: `broker()` starts it, `LiveBroker` is what the test has of it.

    with broker() as rabbit:
        client = pika.BlockingConnection(pika.URLParameters(rabbit))

What it is bound to is the URL, a str, and knows what became of every message, brings about faults, and moves time on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from leveret.testing.kit.faults import Fault, Faults

if TYPE_CHECKING:
    from leveret.testing.kit.clock import VirtualClock
    from leveret.testing.kit.fixture import BrokerFixture
    from leveret.testing.kit.record import Message

T = TypeVar("T")


class LiveBroker(str):
    """The URL of a broker in this process, for guest in virtual host "/", and the broker behind it.

    Safe to be used from any thread; nothing here waits for a client. A pickle or a copy of it is the URL alone.

    clock: the VirtualClock that it was started with, None without one.
    """

    _fixture: BrokerFixture
    faults: Faults
    clock: VirtualClock | None

    def __new__(cls, fixture: BrokerFixture) -> LiveBroker:
        self = super().__new__(cls, f"amqp://guest:guest@{fixture.host}:{fixture.port}/%2F")
        self._fixture = fixture
        self.clock = fixture.clock
        self.faults = Faults(fixture)
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def url(self) -> str:
        """The URL as a plain str."""
        return str(self)

    @property
    def host(self) -> str:
        """The address that it listens on."""
        return self._fixture.host

    @property
    def port(self) -> int:
        """The port, which stays the same over restarts."""
        return self._fixture.port

    def url_for(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        """The URL for another user or virtual host."""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"amqp://{login}@{self.host}:{self.port}/{quote(vhost, safe='')}"

    # -- its run ------------------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """It serves."""
        broker_run = self._fixture.broker_run
        return broker_run is not None and not broker_run.is_over

    @property
    def failure(self) -> Exception | None:
        """Why it has stopped by itself, as a broker does whose disk fails; None if it has not."""
        return None if self._fixture.broker_run is None else self._fixture.broker_run.failure

    def start(self) -> None:
        """Begin another run, with what is on the disk, on the same port. Nothing happens while it is up."""
        self._fixture.start()

    def stop(self) -> None:
        """An orderly stop. Clients are told, and have a second to close their connections.

        RuntimeError while the disk is stalled: it would wait for ever.
        """
        self._fixture.end("stop")

    def crash(self) -> None:
        """What `kill -9` and a power cut in one would do: what was not synced is lost, connections are reset.

        With a data_dir the files stay as they are, as after `kill -9` alone.
        """
        self._fixture.end("crash")

    def restart(self, crash: bool = False) -> None:
        """Stop, or crash, and start again."""
        (self.crash if crash else self.stop)()
        self.start()

    def down(self, crash: bool = False) -> Fault:
        """Stop, or crash; connections are refused until the fault is undone."""
        (self.crash if crash else self.stop)()
        return Fault(self.faults, "down", self.start)

    def close(self) -> None:
        """End it for good. A broker that was started by `with` ends with that."""
        self.faults.clear()
        self._fixture.close()

    # -- looking -------------------------------------------------------------------------------------------------------

    def published(
        self,
        routing_key: str | None = None,
        *,
        exchange: str | None = None,
        body: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        vhost: str | None = None,
        where: Callable[[Message], bool] | None = None,
        json: Any = ...,
        count: int | None = None,
    ) -> list[Message]:
        """The messages that were published with all this, oldest first; json: what the body says in JSON.

        There must be `count` of them, or, without it, at least one: else AssertionError, with what was published
        instead. What a client has a confirm for is there; what it has just sent may be on its way (`eventually`).
        """
        from leveret.testing.kit.asserting import Wanted, check

        wanted = Wanted(exchange, routing_key, body, json, headers, properties, vhost, where)
        return check(wanted, self._fixture.record.published(), count)

    def confirmed(self, routing_key: str | None = None, **wanted: Any) -> list[Message]:
        """The same for messages all of which must have been confirmed to their publishers."""
        from leveret.testing.kit.asserting import check_confirmed

        found = self.published(routing_key, **wanted)
        check_confirmed(found)
        return found

    def unroutable(self, routing_key: str | None = None, **wanted: Any) -> list[Message]:
        """The messages that were published and went to no queue. It takes and raises what `published` does."""
        from leveret.testing.kit.asserting import Wanted, check

        count = wanted.pop("count", None)
        lost = [message for message in self._fixture.record.published() if not message.queues]
        return check(Wanted(routing_key=routing_key, **wanted), lost, count, "unroutable")

    def delivered(self, queue: str | None = None) -> list[Message]:
        """What was delivered to clients so far, or of that what was from one queue, oldest first."""
        return [message for name, message in self._fixture.record.delivered() if queue in (None, name)]

    def forget(self) -> None:
        """Begin anew: what was published and delivered so far is not counted any more. Queues stay as they are."""
        self._fixture.record.clear()

    def messages(self, queue: str, vhost: str = "/") -> list[Message]:
        """What is ready in a queue, in order, left where it is. AssertionError if there is no such queue."""
        from leveret.testing.kit.looking import waiting

        broker_run = self._fixture.living()
        return broker_run.call(lambda: waiting(broker_run.server.broker, queue, vhost))

    def queue_depth(self, queue: str, vhost: str = "/") -> int:
        """How many messages are ready in a queue. AssertionError if there is no such queue."""
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()
        return broker_run.call(lambda: int(find_queue(broker_run.server.broker, queue, vhost).count()))

    def unacknowledged(self, queue: str, vhost: str = "/") -> int:
        """How many of its messages are with consumers. AssertionError if there is no such queue."""
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()
        return broker_run.call(lambda: int(find_queue(broker_run.server.broker, queue, vhost).unacked))

    def consumers(self, queue: str, vhost: str = "/") -> int:
        """How many consumers a queue has. AssertionError if there is no such queue."""
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()
        return broker_run.call(lambda: int(find_queue(broker_run.server.broker, queue, vhost).consumers.count))

    def queues(self, vhost: str = "/") -> list[str]:
        """The names of all queues, sorted."""
        broker_run = self._fixture.living()
        return broker_run.call(lambda: sorted(broker_run.server.broker.vhosts[vhost].queues))

    def connections(self) -> list[str]:
        """What their clients call the connections, oldest first; "" for one without a name."""
        return self._fixture.living().call(lambda: [line.name for line in self._fixture.network.lines])

    @property
    def block_reason(self) -> str:
        """The alarms that keep messages out, as connection.blocked tells who publishes now; empty without alarm."""
        broker_run = self._fixture.living()
        return broker_run.call(lambda: broker_run.server.broker.block_reason)

    @property
    def log(self) -> list[str]:
        """What the broker has noted: why it closed channels and connections, and such."""
        return list(self._fixture.record.log)

    def report(self) -> str:
        """What there is in it, in lines: for the one who looks at a test that failed."""
        from leveret.testing.kit.looking import report

        broker_run = self._fixture.broker_run
        if broker_run is None or broker_run.is_over:
            lines = [f"the broker is down{f': {self.failure}' if self.failure else ''}"]
        else:
            lines = broker_run.call(lambda: report(broker_run.server.broker))
        faults = [f"fault: {fault}" for fault in self.faults.active]
        return "\n".join([*lines, *faults, *(f"log: {line}" for line in self.log[-20:])])

    # -- operating -----------------------------------------------------------------------------------------------------

    def ctl(self, command: str, **arguments: Any) -> Any:
        """What an operator would do: a command as `leveret ctl` and the HTTP API know it; returns its answer.

            rabbit.ctl("add_user", name="alice", password="secret")
            rabbit.ctl("set_policy", name="ttl", pattern="^orders", definition={"message-ttl": 60000})

        `leveret.control.commands` has all of them with their arguments. ValueError if it is refused, with the reason.
        """
        from leveret.testing.kit.operating import operate

        return operate(self._fixture.living(), command, arguments)


class Starting:
    """Starts a broker when it is entered, by `with` or `async with`, and ends it with the block; or call `start`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._live: LiveBroker | None = None

    def start(self) -> LiveBroker:
        """Start it; whoever does so must `close` it."""
        from leveret.testing.kit.fixture import BrokerFixture

        fixture = BrokerFixture(**self._options)
        try:
            fixture.start()
        except BaseException:
            fixture.close()
            raise
        return LiveBroker(fixture)

    def __enter__(self) -> LiveBroker:
        self._live = self.start()
        return self._live

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.close()

    async def __aenter__(self) -> LiveBroker:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        # clients on this very loop may want to say goodbye meanwhile
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def broker(
    *,
    clock: VirtualClock | None = None,
    definitions: Mapping[str, Any] | str | Path | None = None,
    data_dir: str | Path | None = None,
    port: int = 0,
    **settings: Any,
) -> Starting:
    """A broker of one's own in this process: `with broker() as url:`, or `async with`.

    Args:
        clock: a VirtualClock, by which it goes instead of the machine's.
        definitions: exchanges, queues, bindings, policies, users and so on, as RabbitMQ exports them: a dict, or the
            path of a JSON file. They are there from the beginning; guest stays, and may do everything.
        data_dir: where its files are; None: on a disk in memory, which ends with it.
        port: to listen on; 0: a free one.
        **settings: those of `leveret.broker.broker.Settings`, such as heartbeat_s, consumer_timeout_ms, cluster_name.

    Raises (when it starts):
        OSError: the port or the directory can't be had. ValueError: the definitions are wrong. TypeError: there is no
        such setting.
    """
    directory = None if data_dir is None else Path(data_dir).absolute()
    return Starting({"clock": clock, "definitions": definitions, "data_dir": directory, "port": port, **settings})
