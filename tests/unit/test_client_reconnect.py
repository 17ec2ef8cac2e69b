"""A connection that is lost anywhere is restored with all that it had, in both APIs' common core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from leveret.broker.peer import Peer
from leveret.client import BlockingConnection, connect
from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import (
    ChannelClosed,
    ClientError,
    ConnectionClosed,
    OutboxFull,
    PublishError,
    TransactionLost,
)
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.client.protocol.reconnect import Reconnect
from leveret.client.protocol.waiter import Waiter
from leveret.wire import grammar
from leveret.wire.frames import FRAME_OVERHEAD, PROTOCOL_HEADER
from leveret.wire.method import method_frame

from .client_in_memory import URL
from .support import Bench

Answer = Waiter[Any]
SOON = Reconnect(first_delay_s=0.0, max_delay_s=0.01)


class Session:
    """A connection core with a policy, on a broker in memory. `cut_after`: frames that pass before the line breaks."""

    def __init__(self, policy: Reconnect | None = None, frame_max: int = 131072) -> None:
        self.bench = Bench()
        self.core = ConnectionCore(URL, 0, "session", policy or Reconnect())
        self.losses: list[str] = []
        self.core.on_interrupted = lambda error: self.losses.append(str(error))
        self.cut_after: int | None = None
        self.frames = 0
        self.unread = b""
        self.connect()

    def connect(self) -> None:
        """Give the core a socket to the broker, as the APIs do."""
        self.peer = Peer(self.bench.broker, "memory:1", True)
        self.unread = b""
        self.settle()

    def reconnect(self) -> None:
        """Restore a connection that was lost."""
        self.core.begin(URL)
        self.connect()

    def cut(self, reason: str = "cut") -> None:
        """Break the line: what is under way is lost on both sides."""
        self.cut_after = None
        self.peer.lost(self.bench.now_us)
        self.bench.sync()
        self.core.lost(reason)

    def passes(self) -> bool:
        """Count a frame; break the line if it is the one that does not pass."""
        if self.frames == self.cut_after:
            self.cut()
            return False
        self.frames += 1
        return True

    def settle(self) -> None:
        """Move frames, one at a time, until neither side has anything to send, or the line breaks."""
        moved = True
        while moved and self.core.is_on_line:
            moved = False
            for frame in each_frame(self.core.take()):
                moved = True
                if not self.passes():
                    return
                self.peer.turn(frame, self.bench.now_us)
                self.bench.sync()
            data = self.unread + b"".join(bytes(part) for part in self.peer.take(self.bench.broker.log.synced))
            for frame in each_frame(data):
                moved = True
                if not self.passes():
                    return
                self.core.receive(frame)

    def messages(self, queue: str) -> int:
        """Return the number of messages of a queue, ready or not."""
        found = self.bench.broker.vhosts["/"].queues[queue]
        return int(found.count()) + int(found.unacked)


def each_frame(data: bytes) -> Iterator[bytes]:
    """Yield the frames of what one side wrote; the protocol header counts as one."""
    if data.startswith(PROTOCOL_HEADER):
        yield PROTOCOL_HEADER
        data = data[len(PROTOCOL_HEADER) :]
    at = 0
    while at < len(data):
        end = at + int.from_bytes(data[at + 3 : at + 7], "big") + FRAME_OVERHEAD
        yield data[at:end]
        at = end


class User:
    """An application on a session: a channel with confirms and a consumer that acknowledges."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.confirmed: list[str] = []
        self.refused: list[tuple[str, PublishError]] = []
        self.received: list[Delivery] = []
        self.last: Delivery | None = None
        self.ended: list[ClientError] = []
        self.channel: ChannelCore[str] = session.core.open_channel(self.settled, self.ended.append)
        self.asked: list[Answer] = []
        self.ask(self.channel.request, requests.open_channel())

    def ask(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        answer = call(*arguments)
        self.asked.append(answer)
        return answer

    def settled(self, token: str, error: PublishError | None) -> None:
        if error is None:
            self.confirmed.append(token)
        else:
            self.refused.append((token, error))

    def declare(self, name: str = "q", **values: Any) -> Answer:
        known = {"durable": True, "exclusive": False, "auto_delete": False, "passive": False, "arguments": None}
        return self.ask(self.channel.request, requests.declare_queue(name, **{**known, **values}))

    def publish(self, text: str, queue: str = "q", *, mandatory: bool = False) -> None:
        self.channel.publish(text, text.encode(), "", queue, None, mandatory)

    def consume(
        self, queue: str = "q", no_ack: bool = False, tag: str = "c", arguments: dict[str, Any] | None = None
    ) -> Answer:
        sink = DeliverySink(tag, self.receive, self.ended.append, lambda: self.last)
        return self.ask(self.channel.consume, sink, queue, no_ack, False, arguments)

    def receive(self, delivery: Delivery) -> None:
        self.received.append(delivery)
        self.last = delivery

    def acknowledge(self) -> list[bool]:
        """Acknowledge what has arrived, and return whether it still counted."""
        received, self.received = self.received, []
        return [self.channel.ack(delivery.delivery_tag, False) for delivery in received]

    def answered(self) -> bool:
        return all(answer.done and answer.error is None for answer in self.asked)


def scenario(session: Session) -> User:
    """Do a little of everything; the line may break anywhere."""
    user = User(session)
    user.declare()
    user.declare("other")
    user.ask(user.channel.request, requests.declare_exchange("x", "topic", True, False, False, False, None))
    user.ask(user.channel.request, requests.bind_queue("q", "x", "a.*", None))
    user.ask(user.channel.confirm_select)
    user.ask(user.channel.request, requests.qos(2, False))
    session.settle()
    for number in range(3):
        user.publish(str(number), mandatory=True)
    session.settle()
    user.consume()
    session.settle()
    user.publish("3")
    user.publish("nowhere", "no queue", mandatory=True)
    session.settle()
    user.acknowledge()
    session.settle()
    return user


FRAMES = 56
"""At least as many frames as the scenario moves, in both directions."""


RESTORED_FRAMES = 36
"""At least as many frames as restoring it moves."""


@pytest.mark.parametrize("first", range(FRAMES))
def test_a_line_that_breaks_at_any_frame_loses_nothing(first: int) -> None:
    for second in [None, *range(first % 3, RESTORED_FRAMES, 3)]:
        check_cuts(first, second)


def check_cuts(first: int, second: int | None) -> None:
    """Break the line after so many frames, and again after so many of what restores it."""
    session = Session()
    session.cut_after = session.frames + first
    user = scenario(session)
    if session.losses and second is not None:
        session.cut_after = session.frames + second
        session.reconnect()
    session.cut_after = None
    while not session.core.is_on_line:
        session.reconnect()
    session.settle()
    # every call is answered, every publish is settled once, in order
    assert session.core.error is None
    assert user.ended == []
    assert user.answered()
    assert user.confirmed == ["0", "1", "2", "3"]
    assert [token for token, _ in user.refused] == ["nowhere"]
    # the consumer goes on with all that it had not acknowledged
    while session.messages("q"):
        assert user.acknowledge()
        session.settle()
    user.publish("last")
    session.settle()
    assert user.confirmed[-1] == "last"
    assert user.received[-1].body == b"last"


def test_the_scenario_is_as_long_as_its_cuts() -> None:
    session = Session()
    before = session.frames
    scenario(session)
    assert FRAMES - 10 < session.frames - before <= FRAMES
    session.cut()
    before = session.frames
    session.reconnect()
    assert RESTORED_FRAMES - 10 < session.frames - before <= RESTORED_FRAMES


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def user(session: Session) -> User:
    user = User(session)
    session.settle()
    return user


def lose(session: Session) -> None:
    session.cut()
    session.reconnect()


def test_a_queue_that_the_broker_named_has_another_name_and_its_old_one_is_still_understood(
    session: Session, user: User
) -> None:
    declared = user.declare("", exclusive=True)
    session.settle()
    first = declared.result().text("queue")
    user.ask(user.channel.request, requests.bind_queue(first, "amq.topic", "a.*", None))
    user.consume(first, no_ack=True)
    session.settle()
    lose(session)
    present = session.core.topology.names[first]
    assert present != first
    user.channel.publish("t", b"by its binding", "amq.topic", "a.b", None, False)
    user.publish("by its old name", first)
    user.ask(user.channel.request, requests.purge_queue(first))
    session.settle()
    assert [delivery.body for delivery in user.received] == [b"by its binding", b"by its old name"]
    assert user.answered()
    lose(session)
    assert session.core.topology.names[first] not in (first, present)


def test_an_acknowledgement_of_a_lost_delivery_does_not_count_and_harms_nothing(session: Session, user: User) -> None:
    user.declare()
    user.publish("one")
    user.consume()
    session.settle()
    old = user.received.pop()
    lose(session)
    (new,) = user.received
    assert (new.body, new.redelivered) == (b"one", True)
    for multiple in (False, True):
        assert user.channel.ack(old.delivery_tag, multiple) is False
    assert user.channel.acknowledge(grammar.BASIC_NACK, old.delivery_tag, multiple=False, requeue=True) is False
    session.settle()
    assert session.messages("q") == 1
    assert user.channel.ack(new.delivery_tag, False) is True
    session.settle()
    assert session.messages("q") == 0
    assert user.ended == []


def test_all_deliveries_can_be_acknowledged_at_once_after_a_reconnect(session: Session, user: User) -> None:
    user.declare()
    user.publish("one")
    user.consume()
    session.settle()
    session.cut()
    assert user.channel.ack(0, True) is False
    session.reconnect()
    assert user.channel.ack(0, True) is True
    session.settle()
    assert session.messages("q") == 0


def test_an_answer_to_get_has_a_tag_of_its_connection(session: Session, user: User) -> None:
    user.declare()
    user.publish("one")
    session.settle()
    lose(session)
    got = user.channel.get("q", False)
    session.settle()
    assert user.channel.ack(got.result().delivery_tag, False)
    session.settle()
    assert session.messages("q") == 0


def test_an_exclusive_queue_that_is_still_locked_is_tried_again(session: Session, user: User) -> None:
    user.declare("mine", exclusive=True)
    session.settle()
    hung_up = session.peer
    session.core.lost("the broker has not noticed")
    session.reconnect()
    assert not session.core.is_on_line
    assert "405 RESOURCE_LOCKED" in session.losses[-1]
    assert session.core.error is None
    hung_up.lost(session.bench.now_us)
    session.reconnect()
    assert session.core.is_on_line
    assert user.ended == []


def test_a_channel_learns_once_that_its_connection_is_lost_however_often_that_is_tried(
    session: Session, user: User
) -> None:
    told: list[str] = []
    user.channel.on_interrupted = lambda: told.append("interrupted")
    user.channel.on_restored = lambda: told.append("restored")
    user.declare("mine", exclusive=True)
    session.settle()
    hung_up = session.peer
    session.core.lost("the broker has not noticed")
    session.reconnect()  # to find the queue locked
    assert len(session.losses) == 2
    hung_up.lost(session.bench.now_us)
    session.reconnect()
    assert told == ["interrupted", "restored"]


def test_a_connection_is_restored_when_one_of_its_channels_is_not(session: Session, user: User) -> None:
    user.declare()
    user.ask(user.channel.confirm_select)
    other = User(session)
    reader = session.bench.connect()
    reader.call(1, grammar.QUEUE_DECLARE, queue="another's")
    other.consume("another's", tag="o")
    session.settle()
    session.cut()
    reader.call(1, grammar.QUEUE_DELETE, queue="another's")
    session.bench.sync()
    session.reconnect()
    assert "no queue 'another's'" in str(other.ended[0])
    assert session.core.restored.done
    assert session.core.restored.error is None
    user.publish("goes on")
    session.settle()
    assert user.confirmed == ["goes on"]


def test_what_a_connection_waits_for_while_it_is_restored_fails_when_it_is_lost_again(
    session: Session, user: User
) -> None:
    user.declare()
    user.consume()
    session.settle()
    session.cut()
    session.core.begin(URL)
    session.peer = Peer(session.bench.broker, "memory:1", True)
    while not session.core._channels[1]._awaited:  # until the channel's turn to be restored has come
        for frame in each_frame(session.core.take()):
            session.peer.turn(frame, session.bench.now_us)
            session.bench.sync()
        session.core.receive(b"".join(bytes(part) for part in session.peer.take(session.bench.broker.log.synced)))
    user.channel.close()
    session.cut()
    assert session.core.restored.error is not None


def test_what_was_declared_and_exists_otherwise_now_ends_the_connection(session: Session, user: User) -> None:
    user.declare("q")
    session.settle()
    session.cut()
    other = session.bench.connect()
    other.call(1, grammar.QUEUE_DELETE, queue="q")
    other.call(1, grammar.QUEUE_DECLARE, queue="q", durable=False)
    session.reconnect()
    assert session.core.error is not None
    assert session.core.error.code == 406
    assert "could not be declared again after a reconnect: 406 PRECONDITION_FAILED" in str(session.core.error)
    assert user.ended == [session.core.error]


@pytest.mark.parametrize(("code", "is_final"), [(320, False), (541, False), (506, False), (504, True), (530, True)])
def test_which_reasons_of_the_broker_are_final(session: Session, user: User, code: int, is_final: bool) -> None:
    session.peer.close(code, "because")
    session.settle()
    assert (session.core.error is not None) == is_final
    assert not session.core.is_on_line


def test_a_login_that_is_refused_is_final(session: Session, user: User) -> None:
    session.cut()
    session.core.begin(replace(URL, password="wrong"))
    session.connect()
    assert session.core.error is not None
    assert session.core.error.code == 403
    assert user.ended == [session.core.error]


def test_messages_without_confirms_wait_for_the_connection(session: Session, user: User) -> None:
    user.declare()
    session.settle()
    session.cut()
    user.publish("one")
    user.publish("two")
    session.reconnect()
    assert session.messages("q") == 2


def test_the_outbox_has_limits() -> None:
    session = Session(Reconnect(outbox_max=2))
    user, bare = User(session), User(session)
    user.ask(user.channel.confirm_select)
    session.settle()
    session.cut()
    for each in (user, bare):
        each.publish("one")
        each.publish("two")
        assert each.channel.is_outbox_full
        with pytest.raises(OutboxFull, match=r"2 publishes with \d+ octets wait for the broker, which is the limit"):
            each.publish("three")
    session.reconnect()
    assert not user.channel.is_outbox_full
    assert not bare.channel.is_outbox_full
    assert user.confirmed == ["one", "two"]


def test_a_publish_whose_caller_no_longer_waits_is_not_sent_again(session: Session, user: User) -> None:
    user.declare()
    user.ask(user.channel.confirm_select)
    session.settle()
    session.cut_after = session.frames  # the first of its three frames does not arrive
    sent = user.channel.publish("sent", b"sent", "", "q", None, False)
    session.settle()
    held = user.channel.publish("held", b"held", "", "q", None, False)
    kept = user.channel.publish("kept", b"kept", "", "q", None, False)
    assert user.channel.withdraw(sent) is True  # perhaps
    assert user.channel.withdraw(held) is False
    session.reconnect()
    assert user.confirmed == ["kept"]
    assert session.messages("q") == 1
    assert user.channel.withdraw(kept) is True  # it is confirmed


def test_a_refused_publish_has_its_own_number_after_a_reconnect(session: Session, user: User) -> None:
    user.declare(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    user.ask(user.channel.confirm_select)
    user.publish("1")
    session.settle()
    session.cut()
    user.publish("2")
    session.reconnect()
    user.publish("3")
    session.settle()
    assert user.confirmed == ["1"]
    assert [(token, str(error)) for token, error in user.refused] == [
        (number, f"the broker refused publish number {number} (basic.nack)") for number in ("2", "3")
    ]


def test_a_transaction_that_was_lost_says_so_and_the_next_one_counts(session: Session, user: User) -> None:
    user.declare()
    user.ask(user.channel.request, requests.tx_select())
    session.settle()
    user.publish("lost")
    lose(session)
    user.publish("of the lost one, too")
    with pytest.raises(TransactionLost, match="rolled it back; begin it again"):
        user.channel.request(requests.tx_commit())
    user.publish("new")
    user.ask(user.channel.request, requests.tx_commit())
    session.settle()
    assert user.answered()
    assert session.messages("q") == 1
    lose(session)  # nothing is pending, so nothing is lost
    user.publish("another")
    user.ask(user.channel.request, requests.tx_commit())
    session.settle()
    assert session.messages("q") == 2


def test_the_outcome_of_a_commit_under_way_is_unknown(session: Session, user: User) -> None:
    user.ask(user.channel.request, requests.tx_select())
    session.settle()
    commit = user.channel.request(requests.tx_commit())
    session.cut()
    assert isinstance(commit.error, TransactionLost)
    assert "whether it took effect is unknown" in str(commit.error)
    session.reconnect()
    user.ask(user.channel.request, requests.tx_commit())
    session.settle()
    assert user.answered()


def test_a_consumer_of_a_stream_goes_on_behind_the_last_message_that_was_taken(session: Session, user: User) -> None:
    user.declare("s", arguments={"x-queue-type": "stream"})
    user.ask(user.channel.request, requests.qos(10, False))
    session.settle()
    for number in range(4):
        user.publish(str(number), "s")
    user.consume("s", arguments={"x-stream-offset": "first"})
    session.settle()
    assert [delivery.body for delivery in user.received] == [b"0", b"1", b"2", b"3"]
    user.last = user.received[1]  # the application has taken two
    user.received.clear()
    lose(session)
    assert [delivery.body for delivery in user.received] == [b"2", b"3"]


def test_each_consumer_has_the_prefetch_limit_that_it_had(session: Session, user: User) -> None:
    for tag, limit in (("a", 1), ("b", 3)):
        user.declare(tag)
        user.ask(user.channel.request, requests.qos(limit, False))
        session.settle()
        user.consume(tag, tag=tag)
        session.settle()
    user.ask(user.channel.request, requests.qos(2, False))
    session.settle()
    lose(session)
    user.declare("c")
    user.consume("c", tag="c")
    for queue in ("a", "b", "c"):
        for _ in range(5):
            user.publish("x", queue)
    session.settle()
    tags = [delivery.consumer_tag for delivery in user.received]
    assert {tag: tags.count(tag) for tag in "abc"} == {"a": 1, "b": 3, "c": 2}


def test_what_was_deleted_or_cancelled_is_not_restored(session: Session, user: User) -> None:
    user.declare("gone")
    user.declare("unused", auto_delete=True)
    user.ask(user.channel.request, requests.declare_exchange("x", "topic", True, True, False, False, None))
    user.ask(user.channel.request, requests.bind_queue("gone", "x", "", None))
    user.consume("unused", tag="u")
    session.settle()
    user.ask(user.channel.request, requests.delete_queue("gone", False, False))  # and with its binding the exchange
    user.ask(user.channel.cancel, "u")
    session.settle()
    lose(session)
    vhost = session.bench.broker.vhosts["/"]
    assert "gone" not in vhost.queues
    assert "unused" not in vhost.queues
    assert "x" not in vhost.exchanges


def test_a_channel_that_is_opened_or_closed_meanwhile(session: Session, user: User) -> None:
    session.cut()
    late = User(session)
    late.declare("late")
    closing = user.channel.close()
    assert closing.done
    assert [type(error) for error in user.ended] == [ChannelClosed]
    session.reconnect()
    assert late.answered()
    assert "late" in session.bench.broker.vhosts["/"].queues
    assert len(session.peer.channels) == 1


def test_a_connection_can_be_closed_while_it_is_lost(session: Session, user: User) -> None:
    session.cut()
    session.core.close()
    assert session.core.closed.done
    with pytest.raises(ConnectionClosed, match="closed by this client"):
        user.publish("x")


def test_a_broker_with_smaller_frames_gets_kept_messages_in_smaller_frames(
    session: Session, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.declare()
    user.ask(user.channel.confirm_select)
    session.settle()
    session.cut()
    body = bytes(range(256)) * 64
    user.channel.publish("big", body, "", "q", None, True)
    monkeypatch.setattr("leveret.client.protocol.connection_core.FRAME_MAX", 4096)
    session.reconnect()
    assert session.core.frame_max == 4096
    assert user.confirmed == ["big"]
    got = user.channel.get("q", True)
    session.settle()
    assert got.result().body == body


class ClosingBroker:
    """Serves sockets; it closes the second connection in the packet that restores a consumer. `restored`: see use()."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.writers: list[asyncio.StreamWriter] = []
        self.restored = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        is_second = len(self.writers) == 2
        peer = Peer(self.bench.broker, "socket:1", True)
        with suppress(ConnectionError):
            while data := await reader.read(4096):
                peer.turn(data, self.bench.now_us)
                self.bench.sync()
                said = b"".join(bytes(part) for part in peer.take(self.bench.broker.log.synced))
                if is_second and grammar.BASIC_CONSUME_OK.key.to_bytes(4, "big") in said:
                    close = {"reply_code": 320, "reply_text": "closed at once", "class_id": 0, "method_id": 0}
                    said += method_frame(0, grammar.CONNECTION_CLOSE, **close)
                writer.write(said)
        peer.lost(self.bench.now_us)
        self.bench.sync()
        writer.close()

    async def use(self, api: str, url: str) -> None:
        """Consume over a connection that is lost, and closed again just as it is restored."""
        loop = asyncio.get_running_loop()
        if api == "asyncio":
            connection = await connect(url, reconnect=SOON)
            connection.on_reconnected(self.restored.set)
            await (await connection.channel()).consume("q")
            self.writers[0].transport.abort()
            await self.restored.wait()
            await connection.close()
            return
        blocking = await asyncio.to_thread(BlockingConnection, url, reconnect=SOON)
        blocking.on_reconnected(lambda: loop.call_soon_threadsafe(self.restored.set))
        channel = await asyncio.to_thread(blocking.channel)
        await asyncio.to_thread(channel.consume, "q")
        assert await asyncio.to_thread(channel.next_delivery)
        reading = asyncio.create_task(asyncio.to_thread(channel.next_delivery))  # the same message again
        self.writers[0].transport.abort()
        await self.restored.wait()
        assert await reading
        await asyncio.to_thread(blocking.close)


@pytest.mark.parametrize("api", ["asyncio", "blocking"])
async def test_a_connection_that_is_closed_in_the_moment_it_is_restored_is_restored_again(api: str) -> None:
    broker = ClosingBroker()
    client = broker.bench.connect()
    client.call(1, grammar.QUEUE_DECLARE, queue="q")
    client.publish("q", b"x")
    async with await asyncio.start_server(broker.serve, "127.0.0.1", 0) as server:
        await broker.use(api, f"amqp://guest:guest@127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert len(broker.writers) == 3


# publisher references


def publishes(session: Session, refuses: bool) -> User:
    """Publish five messages under a reference, one of which no queue takes."""
    user = User(session)
    user.declare(arguments={"x-max-length": 3, "x-overflow": "reject-publish"} if refuses else None)
    session.settle()
    user.ask(user.channel.attach_publisher, "till")
    session.settle()
    for number in range(3):
        user.publish(str(number))
        session.settle()
    user.publish("nowhere", "no queue", mandatory=True)
    user.publish("3")
    user.publish("4")
    session.settle()
    return user


PUBLISHES_FRAMES = 44
"""At least as many frames as publishes() moves."""


@pytest.mark.parametrize("first", range(PUBLISHES_FRAMES))
@pytest.mark.parametrize("refuses", [False, True])
def test_under_a_publisher_reference_each_message_is_there_once_and_in_order(first: int, refuses: bool) -> None:
    for second in [None, *range(first % 4, RESTORED_FRAMES, 4)]:
        session = Session()
        session.cut_after = session.frames + first
        user = publishes(session, refuses)
        if session.losses and second is not None:
            session.cut_after = session.frames + second
            session.reconnect()
        session.cut_after = None
        while not session.core.is_on_line:
            session.reconnect()
        assert session.core.error is None
        assert user.ended == []
        assert user.answered()
        stored = ["0", "1", "2"] if refuses else ["0", "1", "2", "3", "4"]
        assert sorted(user.confirmed) == stored
        assert sorted(token for token, _ in user.refused) == (["3", "4", "nowhere"] if refuses else ["nowhere"])
        user.consume(no_ack=True)
        session.settle()
        assert [delivery.body.decode() for delivery in user.received] == stored
        # the numbers go on, for this channel and for the next one
        last = user.channel.last_publishing_id
        user.publish("last")
        session.settle()
        assert user.confirmed[-1] == "last"
        assert user.channel.last_publishing_id == last + 1
        other = User(session)
        assert other.channel.last_publishing_id == 0
        known = other.ask(other.channel.attach_publisher, "till")
        session.settle()
        assert known.result() == other.channel.last_publishing_id == last + 1
        fenced = user.ended[0]
        assert "publisher reference 'till' was taken over" in str(fenced)


def test_the_publishing_scenario_is_as_long_as_its_cuts() -> None:
    session = Session()
    before = session.frames
    publishes(session, False)
    assert PUBLISHES_FRAMES - 10 < session.frames - before <= PUBLISHES_FRAMES


def test_ids_that_the_broker_has_confirmed_and_forgotten_are_not_used_again(session: Session, user: User) -> None:
    """It keeps nothing of a publish that no queue takes: after a power cut it knows an earlier id."""
    user.declare()
    user.ask(user.channel.attach_publisher, "till")
    session.settle()
    user.publish("kept nowhere", "no queue")
    session.settle()
    session.cut()
    session.bench.broker.vhosts["/"].publishers.by_name["till"].last_id = 0
    session.reconnect()
    session.cut_after = session.frames + 3  # the publish arrives, its confirm does not
    user.publish("once")
    session.settle()
    session.reconnect()
    assert user.confirmed == ["kept nowhere", "once"]
    assert session.messages("q") == 1


def test_a_publisher_that_was_replaced_meanwhile_learns_it_and_publishes_nothing(session: Session, user: User) -> None:
    user.declare()
    user.ask(user.channel.attach_publisher, "till")
    user.publish("stored")
    session.settle()
    session.cut()
    user.publish("too late")
    rival = session.bench.connect()
    rival.call(1, grammar.CONFIRM_SELECT)
    rival.call(
        1,
        grammar.BASIC_CONSUME,
        queue="amq.leveret.publisher",
        consumer_tag="t",
        no_ack=True,
        arguments={"x-leveret-publisher": "till"},
    )
    rival.publish("q", b"of the rival")
    session.bench.sync()
    session.reconnect()
    (fenced,) = user.ended
    assert isinstance(fenced, ChannelClosed)
    assert fenced.code == 406
    assert "another publisher has taken it over" in fenced.text
    assert session.messages("q") == 2
    assert user.confirmed == ["stored"]
