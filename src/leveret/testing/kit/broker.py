"""A broker in the test's process: `broker()` starts it and returns a `LiveBroker`.

    with broker() as rabbit:
        client = pika.BlockingConnection(pika.URLParameters(rabbit))

The LiveBroker is its URL (a str). It also tells what became of every message, injects faults, and advances time.
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
    """The URL of a broker in this process, for user guest and virtual host "/", with methods to control the broker.

    All methods may be called from any thread, and none waits for a client. Pickling or copying it gives the plain URL.

    Attributes:
        clock: the VirtualClock that the broker was started with, or None.
        faults: injects faults.
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
        """Return the URL as a plain str."""
        return str(self)

    @property
    def host(self) -> str:
        """The IP address that the broker listens on."""
        return self._fixture.host

    @property
    def port(self) -> int:
        """The TCP port, which stays the same across restarts."""
        return self._fixture.port

    def url_for(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        """Return the URL for another user or virtual host."""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"amqp://{login}@{self.host}:{self.port}/{quote(vhost, safe='')}"

    # -- start and stop ------------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether the broker is running."""
        broker_run = self._fixture.broker_run
        return broker_run is not None and not broker_run.is_over

    @property
    def failure(self) -> Exception | None:
        """The error that stopped the broker, e.g. a failed disk; None if it did not stop by itself."""
        return None if self._fixture.broker_run is None else self._fixture.broker_run.failure

    def start(self) -> None:
        """Start the broker again, with the data on its disk, on the same port. Does nothing while it is running."""
        self._fixture.start()

    def stop(self) -> None:
        """Shut down in order: clients get connection.close, and one second to answer it.

        Raises RuntimeError while the disk is stalled, since the shutdown would never end.
        """
        self._fixture.end("stop")

    def crash(self) -> None:
        """Stop like `kill -9` and a power failure at once: unsynced data is lost, connections are reset.

        With a data_dir the files stay as they are, as after `kill -9` alone.
        """
        self._fixture.end("crash")

    def restart(self, crash: bool = False) -> None:
        """Stop or crash, then start again."""
        (self.crash if crash else self.stop)()
        self.start()

    def down(self, crash: bool = False) -> Fault:
        """Stop or crash; connections are refused until the fault is undone."""
        (self.crash if crash else self.stop)()
        return Fault(self.faults, "down", self.start)

    def close(self) -> None:
        """Stop for good and free all resources. Not needed within `with broker()`."""
        self.faults.clear()
        self._fixture.close()

    # -- inspection ----------------------------------------------------------------------------------------------------

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
        """Return the published messages that match all given criteria, oldest first.

        A publish whose confirm the client has received is included; one that was just sent may be missing
        (`eventually`).

        Args:
            routing_key, exchange, vhost: where the message was published.
            body: bytes, or text that is encoded as UTF-8.
            headers: the message must have these, and may have others.
            properties: values by name, e.g. {"correlation_id": "7"}.
            where: a predicate on the message.
            json: the value of the body, parsed as JSON.
            count: the expected number of messages; by default at least one.

        Raises:
            AssertionError: there are not that many; the text says what was published instead.
        """
        from leveret.testing.kit.asserting import MessageFilter, check

        wanted = MessageFilter(exchange, routing_key, body, json, headers, properties, vhost, where)
        return check(wanted, self._fixture.record.published(), count)

    def confirmed(self, routing_key: str | None = None, **wanted: Any) -> list[Message]:
        """Like `published`, and raise AssertionError unless all these messages were confirmed to their publishers."""
        from leveret.testing.kit.asserting import check_confirmed

        found = self.published(routing_key, **wanted)
        check_confirmed(found)
        return found

    def unroutable(self, routing_key: str | None = None, **wanted: Any) -> list[Message]:
        """Like `published`, for messages that were routed to no queue."""
        from leveret.testing.kit.asserting import MessageFilter, check

        count = wanted.pop("count", None)
        lost = [message for message in self._fixture.record.published() if not message.queues]
        return check(MessageFilter(routing_key=routing_key, **wanted), lost, count, "unroutable")

    def delivered(self, queue: str | None = None) -> list[Message]:
        """Return the messages delivered to clients so far, from all queues or the given one, oldest first."""
        return [message for name, message in self._fixture.record.delivered() if queue in (None, name)]

    def forget(self) -> None:
        """Forget what was published and delivered so far. Queues are unchanged."""
        self._fixture.record.clear()

    def messages(self, queue: str, vhost: str = "/") -> list[Message]:
        """Return a queue's ready messages in order, without removing them. AssertionError if it does not exist."""
        from leveret.testing.kit.looking import waiting

        broker_run = self._fixture.living()
        return broker_run.call(lambda: waiting(broker_run.server.broker, queue, vhost))

    def queue_depth(self, queue: str, vhost: str = "/") -> int:
        """Return the number of ready messages in a queue. AssertionError if the queue does not exist."""
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()
        return broker_run.call(lambda: int(find_queue(broker_run.server.broker, queue, vhost).count()))

    def unacknowledged(self, queue: str, vhost: str = "/") -> int:
        """Return the number of unacknowledged messages of a queue. AssertionError if the queue does not exist."""
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()
        return broker_run.call(lambda: int(find_queue(broker_run.server.broker, queue, vhost).unacked))

    def consumers(self, queue: str, vhost: str = "/") -> int:
        """Return the number of consumers of a queue. AssertionError if the queue does not exist."""
        from leveret.testing.kit.looking import find_queue

        broker_run = self._fixture.living()
        return broker_run.call(lambda: int(find_queue(broker_run.server.broker, queue, vhost).consumers.count))

    def queues(self, vhost: str = "/") -> list[str]:
        """Return the names of all queues, sorted."""
        broker_run = self._fixture.living()
        return broker_run.call(lambda: sorted(broker_run.server.broker.vhosts[vhost].queues))

    def connections(self) -> list[str]:
        """Return the connections' client-provided names, oldest first; "" for a connection without a name."""
        return self._fixture.living().call(lambda: [line.name for line in self._fixture.network.lines])

    @property
    def block_reason(self) -> str:
        """The reason in connection.blocked that publishers get now; "" if no alarm is on."""
        broker_run = self._fixture.living()
        return broker_run.call(lambda: broker_run.server.broker.block_reason)

    @property
    def log(self) -> list[str]:
        """The broker's log: for example, why it closed channels and connections."""
        return list(self._fixture.record.log)

    def report(self) -> str:
        """Describe the broker's state on several lines, for the output of a failed test."""
        from leveret.testing.kit.looking import report

        broker_run = self._fixture.broker_run
        if broker_run is None or broker_run.is_over:
            lines = [f"the broker is down{f': {self.failure}' if self.failure else ''}"]
        else:
            lines = broker_run.call(lambda: report(broker_run.server.broker))
        faults = [f"fault: {fault}" for fault in self.faults.active]
        return "\n".join([*lines, *faults, *(f"log: {line}" for line in self.log[-20:])])

    # -- operation -----------------------------------------------------------------------------------------------------

    def ctl(self, command: str, **arguments: Any) -> Any:
        """Run a command of `leveret ctl` and the HTTP API, and return its answer.

            rabbit.ctl("add_user", name="alice", password="secret")
            rabbit.ctl("set_policy", name="ttl", pattern="^orders", definition={"message-ttl": 60000})

        See `leveret.control.commands` for all commands and their arguments. Raises ValueError, with the reason, if the
        command is refused.
        """
        from leveret.testing.kit.operating import operate

        return operate(self._fixture.living(), command, arguments)


class Starting:
    """Context manager (`with` or `async with`) that starts a broker and stops it at the end; or call `start`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._live: LiveBroker | None = None

    def start(self) -> LiveBroker:
        """Start the broker; the caller must `close` it."""
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

        # in a thread, as clients on this event loop may have to close their connections meanwhile
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def broker(
    *,
    clock: VirtualClock | None = None,
    definitions: Mapping[str, Any] | str | Path | None = None,
    data_dir: str | Path | None = None,
    port: int = 0,
    **settings: Any,
) -> Starting:
    """Create a broker in this process, started by `with broker() as url:` or `async with`.

    Args:
        clock: a VirtualClock to use instead of the system's clock.
        definitions: exchanges, queues, bindings, policies, users etc. in RabbitMQ's export format, as a dict or the
            path of a JSON file; loaded before the first start. The user guest is kept, with full permissions.
        data_dir: the directory of its files; None for a disk in memory that ends with the broker.
        port: the TCP port to listen on; 0 for a free one.
        **settings: fields of `leveret.broker.broker.Settings`, e.g. heartbeat_s, consumer_timeout_ms, cluster_name.

    Raises (at the start):
        OSError: the port or the directory is unavailable.
        ValueError: the definitions are invalid.
        TypeError: a setting does not exist.
    """
    directory = None if data_dir is None else Path(data_dir).absolute()
    return Starting({"clock": clock, "definitions": definitions, "data_dir": directory, "port": port, **settings})
