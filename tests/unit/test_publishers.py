"""Publisher references: publishes are numbered, and the broker knows after any interruption which of them it has."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest

from leveret.broker.access.users import SHA256, hash_password
from leveret.broker.broker import Settings
from leveret.broker.closed_names import CLOSED_MAX
from leveret.broker.peer import Peer
from leveret.broker.publishers.reference import REFUSED_KEPT, PublisherReference
from leveret.broker.publishers.references import PUBLISHERS_MAX
from leveret.broker.storage.definitions import PERMISSION, USER
from leveret.broker.storage.log import Log, published_record
from leveret.broker.storage.records import Declared, JournalRecord, PublishedIds, RecordError, records
from leveret.cli.store import fields_of
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER

from .publishers import PUBLISHER, asked, attach, attached, forget, opened, publishers, refusal, restarted, state
from .stages import attach as attach_stage
from .stages import drain
from .support import SECOND_US, Bench, Client, recovered
from .test_long_lookups import crowded, wide

DAY_US = 86_400 * SECOND_US
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


def names(client: Client) -> list[str]:
    return [method.name for method in client.methods()]


def published(bench: Bench) -> list[tuple[int, int]]:
    """Return last id and refused bits of each PUBLISHED record on disk."""
    found = []
    for batch in bench.batches:
        found += [(each.id, each.refused) for each in records(batch) if isinstance(each, PublishedIds)]
    return found


def named(bench: Bench, user: str, *tags: str) -> Client:
    """Return a client of another user, with channel 1, who may read only."""
    definitions, password = bench.broker.definitions, hash_password("p", bench.broker.random_bytes, SHA256)
    fields = {"name": user, "password_hash": password, "hashing_algorithm": SHA256, "tags": [*tags], "limits": {}}
    definitions.put(USER, fields)
    definitions.put(PERMISSION, {"user": user, "vhost": "/", "configure": "", "write": "", "read": ".*"})
    client = Client(bench, Peer(bench.broker, f"{user}:1", True))
    client.raw(PROTOCOL_HEADER)
    client.send(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=f"\0{user}\0p".encode())
    client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
    client.send(0, grammar.CONNECTION_OPEN, virtual_host="/")
    client.send(1, grammar.CHANNEL_OPEN)
    client.frames()
    return client


def allowed(bench: Bench, user: str, *tags: str) -> Client:
    """Return a client of another user who may do everything."""
    client = named(bench, user, *tags)
    anything = {"user": user, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    bench.broker.definitions.put(PERMISSION, anything)
    return client


def ask(client: Client) -> None:
    client.send(1, grammar.BASIC_GET, queue=f"{PUBLISHER}.P", no_ack=True)


# -- attaching ---------------------------------------------------------------------------------------------------------


def test_the_answer_comes_when_the_epoch_is_on_disk_and_the_state_right_behind_it() -> None:
    bench = Bench()
    client = bench.connect()
    attach(client)
    assert names(client) == ["confirm.select-ok"]
    bench.sync()
    ok, deliver = client.methods()
    assert (ok.name, ok.text("consumer_tag")) == ("basic.consume-ok", "publisher")
    assert (deliver.name, deliver.text("consumer_tag")) == ("basic.deliver", "publisher")
    assert (deliver.text("exchange"), deliver.text("routing_key")) == ("", PUBLISHER)
    assert (deliver.number("delivery_tag"), deliver.flag("redelivered")) == (1, False)
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="publisher")
    assert attached(client) == state(2, 0)


def test_without_consume_ok_the_state_comes_alone() -> None:
    bench = Bench()
    client = bench.connect()
    client.send(1, grammar.CONFIRM_SELECT)
    given = {"x-leveret-publisher": "P"}
    client.send(1, grammar.BASIC_CONSUME, queue=PUBLISHER, no_ack=True, no_wait=True, arguments=given)
    bench.sync()
    assert names(client) == ["confirm.select-ok", "basic.deliver"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "x-leveret-publisher must be a string of 1 to 200 octets"),
        ({"x-leveret-publisher": ""}, "x-leveret-publisher must be a string of 1 to 200 octets"),
        ({"x-leveret-publisher": "é" * 101}, "x-leveret-publisher must be a string of 1 to 200 octets"),
        ({"x-leveret-publisher": 7}, "x-leveret-publisher must be a string of 1 to 200 octets"),
        ({"x-leveret-publisher": "P", "x-leveret-epoch": 0}, "x-leveret-epoch must be an integer from 1 to 2^62"),
        ({"x-leveret-publisher": "P", "x-leveret-epoch": "1"}, "x-leveret-epoch must be an integer from 1 to 2^62"),
        ({"x-leveret-publisher": "P", "x-leveret-first-id": True}, "x-leveret-first-id must be an integer from 1 to"),
        ({"x-leveret-publisher": "P", "x-leveret-first-id": (1 << 62) + 1}, "x-leveret-first-id must be an integer"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], text: str) -> None:
    bench = Bench()
    client = opened(bench)
    client.send(1, grammar.BASIC_CONSUME, queue=PUBLISHER, no_ack=True, arguments=arguments)
    code, said = refusal(client)
    assert (code, text in said) == (406, True)
    assert publishers(bench).by_name == {}


def test_names_of_200_octets_are_taken() -> None:
    client = opened(Bench())
    assert attached(client, "é" * 100) == state(1, 0, name="é" * 100)
    assert asked(client, "é" * 100) is not None


def test_the_channel_must_have_confirms_and_nothing_else() -> None:
    bench = Bench()
    given = {"x-leveret-publisher": "P"}

    def refused(prepare: Callable[[Client], None], no_ack: bool = True) -> str:
        client = bench.connect()
        prepare(client)
        client.send(1, grammar.BASIC_CONSUME, queue=PUBLISHER, no_ack=no_ack, consumer_tag="two", arguments=given)
        code, text = refusal(client)
        assert code == 406
        return text

    must_confirm = "a channel must be in confirm mode (confirm.select) before it attaches to a publisher reference"
    assert refused(lambda client: None) == f"PRECONDITION_FAILED - {must_confirm}"
    assert must_confirm in refused(lambda client: client.send(1, grammar.TX_SELECT))
    assert "must use no-ack" in refused(lambda client: client.send(1, grammar.CONFIRM_SELECT), no_ack=False)
    assert "already attached to publisher reference 'Q'" in refused(lambda client: attach(client, "Q"))

    def staged(client: Client) -> None:
        client.send(1, grammar.CONFIRM_SELECT)
        attach_stage(client, 0, "a")

    assert "is attached to a stage" in refused(staged)
    client = bench.connect()
    attached(client)
    attach_stage(client, 0, "b")
    assert refusal(client) == (406, "PRECONDITION_FAILED - the channel is attached to a publisher reference")
    assert list(publishers(bench).by_name) == ["Q", "P"]


def test_a_reference_belongs_to_the_user_who_used_it_first() -> None:
    bench = Bench()
    alice = named(bench, "alice")
    attach(alice)
    assert refusal(alice)[0] == 403  # may not write to the default exchange, so could not forget it
    assert attached(allowed(bench, "alice")) == state(1, 0)
    text = "ACCESS_REFUSED - access to publisher reference 'P' in vhost '/' refused for user 'bob'"
    for use in (attach, ask, forget):
        bob = allowed(bench, "bob")
        use(bob)
        assert refusal(bob) == (403, text)
    root = allowed(bench, "root", "administrator")
    assert attached(root) == state(2, 0)
    assert asked(root) == state(2, 0) | {"connection": "root:1"}
    assert publishers(bench).by_name["P"].owner == "alice"


# -- numbering ---------------------------------------------------------------------------------------------------------


def test_every_publish_of_the_channel_has_the_next_id() -> None:
    bench = Bench()
    client = opened(bench, "q")
    client.publish("q", b"before", delivery_mode=2)
    assert attached(client) == state(1, 0)
    client.publish("q", b"1", delivery_mode=2)
    client.publish("nowhere", b"2")
    client.publish("q", b"3", delivery_mode=1)
    bench.sync()
    assert published(bench) == [(1, 0), (2, 0), (3, 0)]
    assert asked(client) == state(1, 3) | {"connection": "test:1"}
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="publisher")
    client.publish("q", b"after")
    assert asked(client) == state(1, 3) | {"connection": None}
    assert attached(client) == state(2, 3)
    client.publish("q", b"4")
    assert asked(client) == state(2, 4) | {"connection": "test:1"}


def test_a_turn_has_one_record_and_each_message_of_a_batch_its_id() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attached(client)
    client.raw(b"".join(client.encoded("q", b"%03d" % number, delivery_mode=2) for number in range(100)))
    bench.sync()
    assert published(bench) == [(100, 0)]
    assert attached(bench.connect()) == state(2, 100)


def test_bodies_that_come_in_pieces_and_large_ones_to_a_waiting_consumer_count() -> None:
    bench = Bench()
    client = opened(bench)
    client.queue("q")
    bench.connect().send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    attached(client)
    for size in (30_000, 200_000):
        sent = client.encoded("q", bytes(size), delivery_mode=1)
        client.raw(sent[: size // 2])
        assert asked(bench.connect()) == state(1, 0 if size == 30_000 else 1) | {"connection": "test:1"}
        client.raw(sent[size // 2 :])
    assert asked(bench.connect()) == state(1, 2) | {"connection": "test:1"}


def test_the_position_is_in_the_batch_of_the_messages() -> None:
    bench = Bench()
    client = opened(bench, "q")
    bench.batches.insert(0, b"".join(Bench().broker.snapshot()))
    attached(client)
    client.publish("q", b"1", delivery_mode=2)
    bench.sync()
    client.publish("q", b"lost", delivery_mode=2)
    bench = restarted(bench)
    client = bench.connect()
    assert attached(client, epoch=1, first_id=1) == state(2, 1)
    client.publish("q", b"2", delivery_mode=2)
    bench.sync()
    assert drain(client, "q") == [b"1", b"2"]


def test_a_new_journal_file_has_all_of_it() -> None:
    bench = Bench()
    client = opened(bench, "q", arguments=FULL)
    attached(client)
    for _ in range(3):
        client.publish("q", delivery_mode=2)
    bench.sync()
    other = recovered([b"".join(bench.broker.snapshot())])
    (found,) = publishers(other).by_name.values()
    assert (found.owner, found.facts()) == ("guest", state(1, 3, 2, 3))
    assert found.used_us == bench.now_us
    assert found.number not in [int(queue.number) for queue in other.broker.vhosts["/"].queues.values()]
    assert attached(other.connect(), epoch=1, first_id=3) == state(2, 3, 3)
    other.connect().queue("r", durable=True)
    assert int(other.broker.vhosts["/"].queues["r"].number) > found.number


def test_the_first_id_of_a_client_that_has_heard_more_than_is_on_disk() -> None:
    """A transient message is confirmed at once: its id is not used again, even if a crash has forgotten it."""
    bench = Bench()
    client = opened(bench, "q")
    bench.batches.insert(0, b"".join(Bench().broker.snapshot()))
    attached(client)
    client.publish("q", b"1", delivery_mode=1)
    assert names(client) == ["basic.ack"]
    bench = restarted(bench)
    client = bench.connect()
    assert attached(client, epoch=1, first_id=2) == state(2, 0)
    assert asked(client) == state(2, 0) | {"connection": "test:1"}
    client.publish("q", b"2")
    assert asked(client) == state(2, 2) | {"connection": "test:1"}
    assert attached(bench.connect(), first_id=2) == state(3, 2)


def test_an_error_ends_the_numbering_at_the_publish_before_it() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attached(client)
    client.raw(client.encoded("q", b"1", delivery_mode=2) + client.encoded("", b"2", exchange="missing"))
    assert refusal(client)[0] == 404
    assert asked(bench.connect()) == state(1, 1) | {"connection": None}
    assert published(bench) == [(1, 0)]


@pytest.mark.parametrize("lay", [crowded, lambda bench: wide(bench, True)])
def test_a_publish_of_several_turns_counts_when_it_is_done(lay: Callable[[Bench], tuple[Client, object]]) -> None:
    bench = Bench()
    client, _ = lay(bench)
    attached(client)
    client.raw(client.encoded("", b"1", exchange="x", headers={"n": 1}) + client.encoded("nowhere", b"2"))
    count = 0
    while client.peer.has_more:
        assert asked(bench.connect()) == state(1, 0) | {"connection": "test:1"}
        client.raw(b"")
        count += 1
    assert count > 1
    assert asked(bench.connect()) == state(1, 2) | {"connection": "test:1"}


# -- what is not stored ------------------------------------------------------------------------------------------------


def test_what_is_refused_or_returned_is_told() -> None:
    bench = Bench()
    client = opened(bench, "q", arguments=FULL)
    attached(client)
    client.raw(
        client.encoded("q", b"1", delivery_mode=2) + client.encoded("q", b"2", delivery_mode=2)
        + client.encoded("nowhere", b"3", mandatory=True) + client.encoded("nowhere", b"4")
        + client.encoded("q", b"5", delivery_mode=2)
    )  # fmt: skip
    bench.sync()
    assert published(bench) == [(5, 0b1101)]
    expected = state(1, 5, 2, 3, 5) | {"connection": "test:1"}
    assert asked(client) == expected
    assert attached(bench.connect(), first_id=3) == state(2, 5, 3, 5)
    bench.batches.insert(0, b"".join(Bench().broker.snapshot()))
    assert asked(restarted(bench).connect()) == state(2, 5, 2, 3, 5) | {"connection": None}


def test_refused_ids_are_kept_among_the_last_65536() -> None:
    reference = PublisherReference(1, "P", "guest", Log())
    reference.reach(3, 0b101)
    assert reference.refused_ids() == [1, 3]
    reference.reach(REFUSED_KEPT, 0)
    assert reference.refused_ids() == [1, 3]
    reference.reach(REFUSED_KEPT + 1, 1)
    assert reference.refused_ids() == [3, REFUSED_KEPT + 1]
    assert reference.refused_ids(4) == [REFUSED_KEPT + 1]
    reference.reach(10 * REFUSED_KEPT, 0)
    assert reference.refused_ids() == []


def test_a_turn_with_more_publishes_than_are_kept() -> None:
    bench = Bench()
    client = opened(bench)
    attached(client)
    client.publish("nowhere", mandatory=True)
    read = client.encoded("nowhere", b"") * 40_000
    client.raw(read)
    client.raw(read)
    assert asked(client) == state(1, 80_001) | {"connection": "test:1"}


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_a_newcomer_takes_over_and_the_old_channel_is_closed() -> None:
    bench = Bench()
    old = opened(bench, "q")
    old.peer.name = "old"
    attached(old)
    old.publish("q", b"old", delivery_mode=2)
    sent = old.encoded("q", b"late", delivery_mode=2)
    old.raw(sent[:40])
    new = bench.connect()
    new.peer.name = "new"
    assert attached(new) == state(2, 1)
    closed = old.methods()[-1]
    assert (closed.name, closed.number("reply_code")) == ("channel.close", 406)
    text = "publisher reference 'P' was taken over by channel 1 of connection 'new'"
    assert closed.text("reply_text") == f"PRECONDITION_FAILED - {text}"
    old.raw(sent[40:] + sent)
    new.publish("q", b"new", delivery_mode=2)
    bench.sync()
    assert drain(new, "q") == [b"old", b"new"]
    assert asked(new) == state(2, 2) | {"connection": "new"}
    old.send(1, grammar.CHANNEL_CLOSE_OK)
    old.send(1, grammar.CHANNEL_OPEN)
    attach(old, epoch=1)
    held = "publisher reference 'P' is held in epoch 2, this client had epoch 1: another publisher has taken it over"
    assert refusal(old) == (406, f"PRECONDITION_FAILED - {held}")


def test_a_client_that_comes_back_closes_its_own_dead_connection() -> None:
    bench = Bench()
    dead = opened(bench, "q")
    attached(dead)
    dead.publish("q", b"1", delivery_mode=2)
    assert attached(bench.connect(), epoch=1, first_id=1) == state(2, 1)
    assert names(dead)[-1] == "channel.close"
    dead.peer.lost(bench.now_us)
    assert attached(bench.connect(), epoch=2, first_id=2) == state(3, 1)


def test_one_channel_takes_over_from_another_of_its_connection() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attached(client)
    client.send(2, grammar.CHANNEL_OPEN)
    client.raw(client.encoded("q", b"1", delivery_mode=2))
    assert attached(client, channel=2) == state(2, 1)
    assert [channel.state for channel in client.peer.channels.values()] == [1, 0]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_client_that_did_not_hear_of_its_new_epoch_comes_back_with_the_old_one(crashes: bool) -> None:
    """The epochs in between were its own: nobody published in them."""
    bench = Bench()
    bench.batches.insert(0, b"".join(bench.broker.snapshot()))
    client = opened(bench, "q")
    attached(client)
    client.publish("q", b"1", delivery_mode=2)
    attached(bench.connect(), epoch=1, first_id=2)  # the answer is lost
    if crashes:
        bench = restarted(bench)
    assert attached(bench.connect(), epoch=1, first_id=2) == state(3, 1)
    if crashes:
        bench.batches = [b"".join(bench.broker.snapshot())]
        bench = restarted(bench)
    client = bench.connect()
    assert attached(client, epoch=1, first_id=2) == state(4, 1)
    client.publish("q", b"2", delivery_mode=2)
    bench.sync()
    if crashes:
        bench = restarted(bench)
    late = bench.connect()
    attach(late, epoch=1)
    assert "is held in epoch 4, this client had epoch 1" in refusal(late)[1]


def test_a_rival_that_published_nothing_fences_the_old_client_too() -> None:
    bench = Bench()
    attached(bench.connect())
    attached(bench.connect())  # a rival: it has no epoch
    assert attached(bench.connect(), epoch=2) == state(3, 0)
    old = bench.connect()
    attach(old, epoch=1)
    assert "is held in epoch 3, this client had epoch 1" in refusal(old)[1]


@pytest.mark.parametrize("arguments", [{}, {"epoch": 1}])
def test_what_a_client_sent_on_a_connection_that_it_gave_up_takes_nothing_over(arguments: dict[str, int]) -> None:
    bench = Bench()
    attached(bench.connect())
    late, client = bench.connect(), bench.connect()
    assert attached(client, **arguments) == state(2, 0)
    bench.broker.has_hung_up = lambda connection: connection is late.peer
    attach(late, **arguments)
    assert refusal(late) == (406, "PRECONDITION_FAILED - the client has closed the connection")
    assert asked(client) == state(2, 0) | {"connection": "test:1"}


def test_an_epoch_that_the_broker_has_not_reached() -> None:
    bench = Bench()
    attached(bench.connect())
    client = bench.connect()
    attach(client, epoch=2)
    text = "PRECONDITION_FAILED - publisher reference 'P' is in epoch 1, this client had epoch 2: the broker has lost"
    assert refusal(client)[1].startswith(text)


# -- forgetting --------------------------------------------------------------------------------------------------------


def test_a_reference_that_was_forgotten_does_not_begin_anew_by_itself() -> None:
    bench = Bench()
    bench.batches.insert(0, b"".join(bench.broker.snapshot()))
    client = opened(bench, "q")
    attached(client)
    client.publish("q", b"1", delivery_mode=2)
    client.frames()
    bench.sync()
    client.frames()
    forget(client)
    assert names(client) == []
    bench.sync()
    assert names(client) == ["basic.ack"]  # and the channel goes on
    assert asked(client) is None
    bench = restarted(bench)
    assert publishers(bench).by_name == {}
    client = bench.connect()
    attach(client, epoch=1)
    code, text = refusal(client)
    assert (code, "publisher reference 'P' was forgotten" in text) == (406, True)
    assert attached(bench.connect()) == state(1, 0)


def test_forgetting_closes_the_channel_that_holds_the_reference() -> None:
    bench = Bench()
    holder, other = bench.connect(), opened(bench)
    attached(holder)
    forget(other)
    assert refusal(holder) == (406, "PRECONDITION_FAILED - publisher reference 'P' was forgotten")
    assert names(other) == ["basic.ack"]
    forget(other)  # again: no effect
    assert names(other) == ["basic.ack"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "the body must be JSON in UTF-8"),
        (b"[]", "the body must be a JSON object"),
        (b'{"op": "release", "publisher": "P"}', '"op" must be "forget"'),
        (b'{"op": "forget"}', "publisher must be a string of 1 to 200 octets"),
    ],
)
def test_what_cannot_be_understood_is_refused(body: bytes, text: str) -> None:
    client = opened(Bench())
    client.publish(PUBLISHER, body)
    assert refusal(client) == (406, f"PRECONDITION_FAILED - {text}")


def test_nothing_is_forgotten_in_a_transaction() -> None:
    client = Bench().connect()
    client.send(1, grammar.TX_SELECT)
    forget(client)
    assert refusal(client)[0] == 406


def test_an_unused_reference_is_closed_and_its_name_is_refused_until_it_is_forgotten() -> None:
    bench = Bench(Settings(quotas={"publisher_unused_days_max": 2}))
    events: list[str] = []
    bench.broker.on_event = events.append
    bench.batches.insert(0, b"".join(bench.broker.snapshot()))
    held, unused = bench.connect(), bench.connect()
    attached(held, "held")
    attached(unused)
    unused.send(1, grammar.BASIC_CANCEL, consumer_tag="publisher")
    for _ in range(4):
        bench.pass_time(DAY_US)
    bench.sync()
    assert list(publishers(bench).by_name) == ["held"]
    assert "publisher reference 'P' in vhost '/' was not used for 2 days and is closed" in events[-1]
    texts = set()
    for other in (bench, restarted(bench), recovered([b"".join(bench.broker.snapshot())])):
        assert publishers(other).by_name["held"].used_us == bench.now_us
        publishers(other).unused_days_max = 2
        for arguments in ({}, {"epoch": 1}):
            client = other.connect()
            attach(client, **arguments)
            texts.add(refusal(client))
        client = other.connect()
        ask(client)
        texts.add(refusal(client))
        client = opened(other)
        forget(client)
        other.sync()
        assert names(client) == ["basic.ack"]
        assert attached(client) == state(1, 0)
    ((code, text),) = texts
    assert (code, "publisher reference 'P' was forgotten after 2 days without use" in text) == (406, True)
    assert publishers(restarted(bench)).closed == {}


def test_what_remains_of_closed_references_is_bounded() -> None:
    bench = Bench()
    known = publishers(bench)
    attached(bench.connect())
    bench.broker.vhosts["/"].channels.pop().peer.lost(bench.now_us)
    known.closed.update(dict.fromkeys(range(CLOSED_MAX), "guest"))
    bench.pass_time(402 * DAY_US)
    assert list(known.by_name) == ["P"]


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_user_has_a_limit_and_a_virtual_host_another() -> None:
    bench = Bench(Settings(quotas={"publisher_max_per_user": 1}))
    attached(bench.connect())
    assert attached(bench.connect()) == state(2, 0)
    client = bench.connect()
    attach(client, "Q")
    assert "user 'guest' has reached the limit of 1 publisher references in vhost '/'" in refusal(client)[1]
    bench.broker.set_quotas(bench.broker.settings.quotas | {"publisher_max_per_user": -1})
    known = publishers(bench)
    known.by_name.update((f"{number}", known.by_name["P"]) for number in range(PUBLISHERS_MAX - 1))
    client = bench.connect()
    attach(client, "Q")
    assert f"vhost '/' has reached the limit of {PUBLISHERS_MAX} publisher references" in refusal(client)[1]


# -- the journal -------------------------------------------------------------------------------------------------------


def test_a_deleted_virtual_host_has_none() -> None:
    bench = Bench()
    attached(bench.connect())
    bench.batches.insert(0, b"".join(Bench().broker.snapshot()))
    bench.broker.vhosts["/"].channels.pop().peer.lost(bench.now_us)
    bench.broker.delete_vhost("/")
    bench.sync()
    assert "/" not in restarted(bench).broker.vhosts


def test_the_journal_is_one_that_an_older_leveret_refuses() -> None:
    """A kind of record that it does not know comes before any position."""
    bench = Bench()
    attached(bench.connect())
    found: list[JournalRecord] = list(records(bench.batches[-1]))
    assert [(each.kind, type(each)) for each in found][-1] == (14, Declared)
    assert 14 in [each.kind for each in records(b"".join(bench.broker.snapshot()))]


def test_records_for_people() -> None:
    bench = Bench()
    client = opened(bench, "q", arguments=FULL)
    attached(client)
    for _ in range(3):
        client.publish("q", delivery_mode=2)
    bench.sync()
    known: dict[int, str] = {}
    shown = [fields_of(each, known, False) for batch in bench.batches for each in records(batch)]
    found = [each for each in shown if str(each["kind"]).startswith("publi")]
    assert found[0]["kind"] == "publisher"
    assert (found[0]["op"], found[0]["publisher"], found[0]["refused"]) == ("publisher.declare", "P", [])
    number = found[0]["number"]
    assert found[1:] == [
        {"kind": "published", "number": number, "publisher": "P", "id": last, "refused": refused}
        for last, refused in ((1, []), (2, [2]), (3, [3]))
    ]
    json.dumps(shown)


def test_a_torn_record_is_malformed_and_one_of_an_unknown_reference_is_passed_over() -> None:
    with pytest.raises(RecordError, match="kind 15 is malformed"):
        list(records(struct.pack(">BIq", 15, 8, 1)))
    recovered([published_record(7, 1, 0)])
