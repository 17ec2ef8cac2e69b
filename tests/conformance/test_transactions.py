"""Transactions, frame by frame: what waits for the commit, what does not, and what a rollback or a close undoes.

Channel 1 is the transactional one in all of these; channel 2 looks at the queues as any other client.
"""

from __future__ import annotations

import pytest

from .raw import Frame, RawClient

NOT_TRANSACTIONAL = "PRECONDITION_FAILED - channel is not transactional"


def exclusive(client: RawClient, **arguments: object) -> str:
    given = {key.replace("_", "-"): item for key, item in arguments.items()}
    return str(client.call("queue.declare", exclusive=True, arguments=given)["queue"])


def filled(client: RawClient, *bodies: bytes, **arguments: object) -> str:
    """Declare a new queue with these messages."""
    queue = exclusive(client, **arguments)
    client.call("channel.open", 9)
    client.call("confirm.select", 9)
    for body in bodies:
        client.publish(body, routing_key=queue, channel=9)
        client.read("basic.ack")
    client.call("channel.close", 9)
    return queue


def ready(client: RawClient, queue: str) -> int:
    return int(client.call("queue.declare", 2, queue=queue, passive=True)["message_count"])


def take(client: RawClient, queue: str, channel: int = 1, *, no_ack: bool = False) -> tuple[bytes, bool] | None:
    """Return body and redelivered flag of the next message, or None if the queue is empty."""
    got = client.call("basic.get", channel, queue=queue, no_ack=no_ack)
    return None if got.name == "basic.get-empty" else (got.body, got["redelivered"])


def left(client: RawClient, queue: str) -> list[tuple[bytes, bool]]:
    """Take out and return all messages that are ready."""
    found = []
    while (got := take(client, queue, no_ack=True)) is not None:
        found.append(got)
    return found


def reopened(client: RawClient) -> None:
    """Close channel 1 and open it again, which requeues what was not acknowledged."""
    client.call("channel.close")
    client.call("channel.open")


# -- the mode --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method_id"), [("tx.commit", 20), ("tx.rollback", 30)])
def test_without_select(raw: RawClient, name: str, method_id: int) -> None:
    assert raw.fail(name) == (406, NOT_TRANSACTIONAL, 90, method_id)


def test_transactions_and_confirms_exclude_each_other(raw: RawClient) -> None:
    raw.call("tx.select")
    text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    assert raw.fail("confirm.select") == (406, text, 85, 10)
    raw.call("tx.select")
    assert raw.fail("confirm.select", no_wait=True) == (406, text, 85, 10)
    raw.call("confirm.select")
    text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    assert raw.fail("tx.select") == (406, text, 90, 10)


def test_the_mode_is_the_channels(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"x", routing_key=queue, channel=2)
    assert take(raw, queue, 2) == (b"x", False)
    assert raw.fail("tx.commit", 2) == (406, NOT_TRANSACTIONAL, 90, 20)


def test_nothing_to_commit_or_to_roll_back(raw: RawClient) -> None:
    raw.call("tx.select")
    for _ in range(2):
        raw.call("tx.commit")
        raw.call("tx.rollback")


# -- publishes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_ends_the_commit_when_all_the_rest_is_done(raw: RawClient, overflow: str) -> None:
    full = exclusive(raw, x_max_length=1, x_overflow=overflow)
    other = filled(raw, b"to be acked")
    raw.call("tx.select")
    assert take(raw, other) == (b"to be acked", False)
    raw.send("basic.ack", delivery_tag=1)
    for body, queue in ((b"1", full), (b"2", full), (b"3", other)):
        raw.publish(body, routing_key=queue)
    assert raw.fail("tx.commit") == (406, "PRECONDITION_FAILED - partial tx completion", 90, 20)
    assert (left(raw, full), left(raw, other)) == ([(b"1", False)], [(b"3", False)])


def test_a_queue_that_drops_its_head_does_not_end_the_commit(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_length=1)
    raw.call("tx.select")
    for body in (b"1", b"2"):
        raw.publish(body, routing_key=queue)
    raw.call("tx.commit")
    assert take(raw, queue) == (b"2", False)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("durable", [False, True])
def test_a_message_is_there_after_the_commit(raw: RawClient, unique: str, durable: bool, mode: int) -> None:
    raw.call("queue.declare", queue=unique, durable=durable)
    raw.call("tx.select")
    for number in range(3):
        raw.publish(b"%d" % number, routing_key=unique, delivery_mode=mode)
    assert ready(raw, unique) == 0
    assert take(raw, unique) is None
    raw.call("tx.commit")
    assert ready(raw, unique) == 3
    assert left(raw, unique) == [(b"0", False), (b"1", False), (b"2", False)]
    raw.call("queue.delete", queue=unique)


def test_selecting_again_keeps_what_was_published(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"x", routing_key=queue)
    raw.call("tx.select")
    assert ready(raw, queue) == 0
    raw.call("tx.commit")
    assert ready(raw, queue) == 1


def test_rollback_drops_what_was_published(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"dropped", routing_key=queue)
    raw.call("tx.rollback")
    raw.publish(b"kept", routing_key=queue)
    raw.call("tx.commit")
    assert left(raw, queue) == [(b"kept", False)]


def test_a_commit_begins_the_next_transaction(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"first", routing_key=queue)
    raw.call("tx.commit")
    raw.publish(b"second", routing_key=queue)
    assert ready(raw, queue) == 1
    raw.call("tx.rollback")
    raw.call("tx.commit")
    assert left(raw, queue) == [(b"first", False)]


def test_a_large_message(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"x" * 300_000, routing_key=queue)
    assert ready(raw, queue) == 0
    raw.call("tx.commit")
    assert take(raw, queue) == (b"x" * 300_000, False)


def test_a_consumer_sees_it_after_the_commit(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.call("basic.consume", 2, queue=queue, no_ack=True)
    raw.call("tx.select")
    for _ in range(5):
        raw.publish(b"x", routing_key=queue)
    raw.quiet()
    raw.send("tx.commit")
    names = sorted(raw.read().name for _ in range(6))
    assert names == [*["basic.deliver"] * 5, "tx.commit-ok"]


@pytest.mark.parametrize("how", ["channel", "connection", "error"])
def test_closing_drops_what_was_published(raw: RawClient, other: RawClient, unique: str, how: str) -> None:
    other.call("queue.declare", queue=unique)
    raw.call("tx.select")
    raw.publish(b"x", routing_key=unique)
    if how == "channel":
        reopened(raw)
    elif how == "connection":
        raw.call("connection.close", 0, reply_code=200)
    else:
        raw.publish(b"x", exchange=unique)
        text = f"NOT_FOUND - no exchange '{unique}' in vhost '/'"
        assert raw.closed() == (404, text, 60, 40)
    assert other.call("queue.delete", queue=unique)["message_count"] == 0


# -- what is checked and found at publish, and what at commit --------------------------------------------------------


@pytest.mark.parametrize(("properties", "text"), [
    ({"expiration": "abc"}, "invalid expiration 'abc': no_integer"),
    ({"user_id": "bob"}, "user_id property set to 'bob' but authenticated user was 'guest'"),
    ({"reply_to": "amq.rabbitmq.reply-to"}, "fast reply consumer does not exist"),
])
def test_bad_properties_fail_at_publish(raw: RawClient, properties: dict[str, str], text: str) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"x", routing_key=queue, **properties)
    assert raw.closed() == (406, f"PRECONDITION_FAILED - {text}", 60, 40)


def test_bindings_count_at_publish(raw: RawClient, unique: str) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"before it was bound", "amq.direct", unique)
    raw.call("queue.bind", queue=queue, exchange="amq.direct", routing_key=unique)
    raw.publish(b"bound", "amq.direct", unique)
    raw.call("queue.unbind", queue=queue, exchange="amq.direct", routing_key=unique)
    raw.publish(b"unbound", "amq.direct", unique)
    raw.call("tx.commit")
    assert left(raw, queue) == [(b"bound", False)]


def test_headers_count_at_publish(raw: RawClient) -> None:
    queues = [exclusive(raw), exclusive(raw)]
    for number, queue in enumerate(queues):
        raw.call("queue.bind", queue=queue, exchange="amq.headers", arguments={"number": number, "x-match": "all"})
    raw.call("tx.select")
    for number in (0, 1, 0):
        raw.publish(b"%d" % number, "amq.headers", headers={"number": number})
    raw.call("tx.commit")
    assert [left(raw, queue) for queue in queues] == [[(b"0", False)] * 2, [(b"1", False)]]


def test_a_queue_is_looked_up_at_commit(raw: RawClient, unique: str) -> None:
    """The default exchange needs no queue at publish; a queue that was deleted and declared again gets its messages."""
    raw.call("tx.select")
    raw.publish(b"before it was there", routing_key=unique, mandatory=True)
    raw.call("queue.declare", queue=unique, exclusive=True)
    raw.call("queue.bind", queue=unique, exchange="amq.direct", routing_key=unique)
    raw.publish(b"by a binding", "amq.direct", unique, mandatory=True)
    raw.call("queue.delete", queue=unique)
    raw.call("queue.declare", queue=unique, exclusive=True)
    raw.call("tx.commit")
    assert left(raw, unique) == [(b"before it was there", False), (b"by a binding", False)]


def test_a_deleted_exchange_has_routed(raw: RawClient, unique: str) -> None:
    queue = exclusive(raw)
    raw.call("exchange.declare", exchange=unique, type="fanout")
    raw.call("queue.bind", queue=queue, exchange=unique)
    raw.call("tx.select")
    raw.publish(b"x", unique)
    raw.call("exchange.delete", exchange=unique)
    raw.call("tx.commit")
    assert take(raw, queue) == (b"x", False)


def returned(got: Frame) -> tuple[int, str, str, str, bytes]:
    return (got["reply_code"], got["reply_text"], got["exchange"], got["routing_key"], got.body)


def test_mandatory_is_returned_before_commit_ok(raw: RawClient, unique: str) -> None:
    queue = exclusive(raw)
    raw.call("tx.select")
    raw.publish(b"first", routing_key=unique, mandatory=True)
    raw.publish(b"routed", routing_key=queue, mandatory=True, delivery_mode=2)
    raw.publish(b"second", "amq.direct", unique, mandatory=True)
    raw.quiet()
    raw.send("tx.commit")
    assert returned(raw.read("basic.return")) == (312, "NO_ROUTE", "", unique, b"first")
    assert returned(raw.read("basic.return")) == (312, "NO_ROUTE", "amq.direct", unique, b"second")
    raw.read("tx.commit-ok")


def test_mandatory_is_returned_when_its_queue_has_gone(raw: RawClient, unique: str) -> None:
    queue = exclusive(raw)
    raw.call("queue.bind", queue=queue, exchange="amq.direct", routing_key=unique)
    raw.call("tx.select")
    raw.publish(b"x", "amq.direct", unique, mandatory=True)
    raw.publish(b"y", routing_key=queue)
    raw.call("queue.delete", queue=queue)
    raw.send("tx.commit")
    assert returned(raw.read("basic.return")) == (312, "NO_ROUTE", "amq.direct", unique, b"x")
    raw.read("tx.commit-ok")


def test_rollback_returns_nothing(raw: RawClient, unique: str) -> None:
    raw.call("tx.select")
    raw.publish(b"x", routing_key=unique, mandatory=True)
    raw.call("tx.rollback")
    raw.call("tx.commit")


def test_time_to_live_counts_from_the_commit(raw: RawClient) -> None:
    """The queue's TTL is 0, so the message would be dead before the commit if it counted from the publish."""
    dead = exclusive(raw)
    queue = exclusive(raw, x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    raw.call("tx.select")
    raw.publish(b"x", routing_key=queue)
    raw.quiet()
    assert ready(raw, dead) == 0
    raw.call("basic.consume", queue=queue, no_ack=True)
    raw.send("tx.commit")
    assert {raw.read().name, raw.read().name} == {"basic.deliver", "tx.commit-ok"}
    assert ready(raw, dead) == 0


def test_a_direct_reply_does_not_wait(raw: RawClient, other: RawClient, unique: str) -> None:
    """It goes to its requester at once; a mandatory one is returned as unroutable at the commit."""
    raw.call("queue.declare", queue=unique)
    other.call("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
    other.publish(b"ask", routing_key=unique, reply_to="amq.rabbitmq.reply-to")
    other.quiet()
    name = raw.call("basic.get", queue=unique, no_ack=True).properties["reply_to"]
    raw.call("tx.select")
    raw.publish(b"answer", routing_key=name, mandatory=True)
    assert other.read("basic.deliver").body == b"answer"
    raw.quiet()
    raw.send("tx.commit")
    assert returned(raw.read("basic.return")) == (312, "NO_ROUTE", "", name, b"answer")
    raw.read("tx.commit-ok")
    other.quiet()
    raw.call("queue.delete", queue=unique)


# -- settlements -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [
    ("basic.ack", {}),
    ("basic.nack", {"requeue": False}),
    ("basic.nack", {"requeue": True}),
    ("basic.reject", {"requeue": False}),
    ("basic.reject", {"requeue": True}),
])
@pytest.mark.parametrize("end", ["close", "rollback", "commit"])
def test_settlements_wait_for_the_commit(raw: RawClient, how: tuple[str, dict[str, bool]], end: str) -> None:
    queue = filled(raw, b"x")
    raw.call("tx.select")
    take(raw, queue)
    name, flags = how
    raw.send(name, delivery_tag=1, **flags)
    assert take(raw, queue) is None
    if end != "close":
        raw.call(f"tx.{end}")
    is_back = end == "commit" and flags.get("requeue", False)
    assert take(raw, queue) == ((b"x", True) if is_back else None)
    reopened(raw)
    is_settled = end == "commit" and not is_back
    assert left(raw, queue) == ([] if is_settled else [(b"x", True)])


@pytest.mark.parametrize("multiple", [False, True])
def test_settling_twice_is_an_error_at_once(raw: RawClient, multiple: bool) -> None:
    queue = filled(raw, b"x", b"y")
    raw.call("tx.select")
    take(raw, queue)
    take(raw, queue)
    raw.send("basic.ack", delivery_tag=1)
    text = "PRECONDITION_FAILED - unknown delivery tag 1"
    assert raw.fail("basic.ack", delivery_tag=1, multiple=multiple) == (406, text, 60, 80)
    assert left(raw, queue) == [(b"x", True), (b"y", True)]


def test_settling_all_twice_is_fine(raw: RawClient) -> None:
    queue = filled(raw, b"x", b"y")
    raw.call("tx.select")
    take(raw, queue)
    take(raw, queue)
    raw.send("basic.ack", delivery_tag=0, multiple=True)
    raw.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    raw.call("tx.commit")
    reopened(raw)
    assert left(raw, queue) == []


def test_after_a_rollback_tags_are_good_again(raw: RawClient) -> None:
    queue = filled(raw, *(b"%d" % number for number in range(5)))
    raw.call("tx.select")
    for _ in range(5):
        take(raw, queue)
    raw.send("basic.ack", delivery_tag=2, multiple=True)
    raw.send("basic.reject", delivery_tag=4, requeue=True)
    raw.call("tx.rollback")
    raw.send("basic.ack", delivery_tag=4)
    raw.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)
    assert raw.call("tx.commit").name == "tx.commit-ok"
    assert left(raw, queue) == [(b"0", True), (b"1", True), (b"2", True)]
    raw.send("basic.ack", delivery_tag=5)
    raw.call("tx.commit")
    reopened(raw)
    assert left(raw, queue) == []


def test_requeued_messages_return_to_their_places(raw: RawClient) -> None:
    queue = filled(raw, *(b"%d" % number for number in range(6)))
    raw.call("tx.select")
    for _ in range(5):
        take(raw, queue)
    raw.send("basic.reject", delivery_tag=4, requeue=True)
    raw.send("basic.ack", delivery_tag=3)
    raw.send("basic.nack", delivery_tag=2, multiple=True, requeue=True)
    raw.publish(b"new", routing_key=queue)
    raw.call("tx.commit")
    assert left(raw, queue) == [(b"0", True), (b"1", True), (b"3", True), (b"5", False), (b"new", False)]


def test_dead_letters_follow_what_was_published(raw: RawClient) -> None:
    """Neighbouring rejects are dead-lettered in the order of delivery; an ack between them makes two groups of them."""
    dead = exclusive(raw)
    bodies = [b"%d" % number for number in range(6)]
    queue = filled(raw, *bodies, x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    raw.call("tx.select")
    for _ in bodies:
        take(raw, queue)
    for tag in (6, 4):
        raw.send("basic.reject", delivery_tag=tag)
    raw.send("basic.ack", delivery_tag=2)
    for tag in (5, 1):
        raw.send("basic.nack", delivery_tag=tag)
    raw.publish(b"published last", routing_key=dead)
    assert ready(raw, dead) == 0
    raw.call("tx.commit")
    found: list[bytes] = []
    while len(found) < 5:  # dead letters take a moment in RabbitMQ
        got = raw.call("basic.get", queue=dead, no_ack=True)
        found += [got.body] if got.name == "basic.get-ok" else []
    assert found == [b"published last", b"3", b"5", b"0", b"4"]


@pytest.mark.parametrize("for_channel", [False, True])
def test_prefetch_is_given_back_at_commit(raw: RawClient, for_channel: bool) -> None:
    queue = filled(raw, *(b"%d" % number for number in range(5)))
    raw.call("tx.select")
    raw.call("basic.qos", prefetch_count=2, **{"global": for_channel})
    raw.call("basic.consume", queue=queue)
    tags = [got["delivery_tag"] for got in raw.deliveries(2)]
    raw.send("basic.ack", delivery_tag=tags[1], multiple=True)
    raw.call("queue.declare", 1, queue=queue, passive=True)
    raw.call("tx.rollback")
    raw.send("basic.ack", delivery_tag=tags[0])
    raw.call("queue.declare", 1, queue=queue, passive=True)
    raw.send("tx.commit")
    seen = sorted([raw.read(), raw.read()], key=lambda got: got.name)
    assert [got.name for got in seen] == ["basic.deliver", "tx.commit-ok"]
    assert seen[0].body == b"2"
    raw.call("queue.declare", 1, queue=queue, passive=True)


def test_a_delivery_without_acknowledgement_is_no_part_of_it(raw: RawClient) -> None:
    queue = filled(raw, b"x", b"y")
    raw.call("tx.select")
    assert take(raw, queue, no_ack=True) == (b"x", False)
    raw.call("tx.rollback")
    reopened(raw)
    assert left(raw, queue) == [(b"y", False)]


@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_recover_returns_what_the_transaction_does_not_hold(raw: RawClient, end: str) -> None:
    queue = filled(raw, b"held", b"free")
    raw.call("tx.select")
    take(raw, queue)
    take(raw, queue)
    raw.send("basic.ack", delivery_tag=1)
    raw.call("basic.recover", requeue=True)
    assert left(raw, queue) == [(b"free", True)]
    raw.call(f"tx.{end}")
    assert left(raw, queue) == []
    reopened(raw)
    assert left(raw, queue) == ([(b"held", True)] if end == "rollback" else [])


def test_publishes_and_acknowledgements_commit_together(raw: RawClient) -> None:
    """What transactions are for: take a message from one queue and put it into the next."""
    source, sink = filled(raw, b"1", b"2"), exclusive(raw)
    raw.call("tx.select")
    for end in ("rollback", "commit"):
        got = raw.call("basic.get", queue=source)
        raw.publish(got.body + b" done", routing_key=sink)
        raw.send("basic.ack", delivery_tag=got["delivery_tag"])
        raw.call(f"tx.{end}")
    assert left(raw, sink) == [(b"2 done", False)]
    reopened(raw)
    assert left(raw, source) == [(b"1", True)]


def test_a_queue_that_has_gone_takes_its_deliveries_along(raw: RawClient) -> None:
    queue = filled(raw, b"x", b"y")
    raw.call("tx.select")
    take(raw, queue)
    take(raw, queue)
    raw.send("basic.ack", delivery_tag=1)
    raw.send("basic.nack", delivery_tag=2, requeue=True)
    raw.call("queue.delete", 2, queue=queue)
    raw.call("tx.commit")
    raw.quiet()


def test_many_messages_in_one_transaction(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, durable=True)
    raw.call("tx.select")
    for number in range(2000):
        raw.publish(b"%d" % number, routing_key=unique, delivery_mode=2)
    assert ready(raw, unique) == 0
    raw.call("tx.commit")
    assert ready(raw, unique) == 2000
    assert [body for body, _ in left(raw, unique)] == [b"%d" % number for number in range(2000)]
    raw.call("queue.delete", queue=unique)
