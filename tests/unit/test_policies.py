"""Policies together with paging, other queues and each other."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.enforcement import STEP
from leveret.broker.policies import NO_EFFECT, Policies, Policy
from leveret.broker.queues.overflow import TRIM_MAX
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.definitions import OPERATOR_POLICY, PARAMETER, POLICY
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.method import method_frame

from .rig import Rig
from .support import SECOND_US, Bench, Client
from .test_limits import bodies, publishes, words
from .test_limits_kept import filled, left


def set_policy(bench: Bench, name: str = "p", pattern: str = "", priority: int = 0, **keys: Any) -> None:
    value = {"pattern": pattern, "apply-to": "all", "priority": priority}
    definition = {key.replace("_", "-"): item for key, item in keys.items()}
    bench.broker.definitions.put(POLICY, {"vhost": "/", "name": name, **value, "definition": definition})
    bench.broker.end_turn(bench.now_us)


def set_operator_policy(bench: Bench, **keys: Any) -> None:
    definition = {key.replace("_", "-"): item for key, item in keys.items()}
    value = {"pattern": "", "apply-to": "all", "priority": 0, "definition": definition}
    bench.broker.definitions.put(
        PARAMETER, {"vhost": "/", "component": OPERATOR_POLICY, "name": "p", "value": value}  # type: ignore[dict-item]
    )
    bench.broker.end_turn(bench.now_us)


def clear_policy(bench: Bench, name: str = "p") -> None:
    assert bench.broker.definitions.remove(POLICY, "/", name)
    bench.broker.end_turn(bench.now_us)


def queue_of(bench: Bench, name: str = "q") -> Queue:
    return bench.broker.vhosts["/"].queues[name]


def declare(client: Client, name: str = "q", **arguments: Any) -> None:
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.send(1, grammar.QUEUE_DECLARE, queue=name, durable=True, arguments=given)
    client.frames()


# -- limits and pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_limit_counts_what_is_on_disk(is_restarted: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=3000)
    client = filled(rig)
    if is_restarted:
        disk.crash()
        rig = Rig(disk, octets_max=3000)
        client = rig.bench.connect()
    set_policy(rig.bench, max_length_bytes=800)
    assert int(queue_of(rig.bench).count()) == 100
    client.call(1, grammar.CONFIRM_SELECT)
    client.raw(publishes("q", b"8 octets"))
    assert left(client) == [*[b"%08d" % number for number in range(101, 200)], b"8 octets"]
    assert int(queue_of(rig.bench).limits.octets) == 0  # type: ignore[union-attr]


def test_a_limit_in_octets_that_follows_one_in_messages_knows_the_octets() -> None:
    disk = MemoryDisk()
    filled(Rig(disk, octets_max=3000), x_max_length=1000)
    disk.crash()
    rig = Rig(disk, octets_max=3000)  # its pages are not read yet, since no limit in octets is set
    set_policy(rig.bench, max_length_bytes=800)
    assert left(rig.bench.connect()) == [b"%08d" % number for number in range(100, 200)]


@pytest.mark.parametrize("defined_first", [False, True])
def test_policies_hold_after_a_restart(defined_first: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    client = rig.bench.connect()
    if defined_first:
        set_policy(rig.bench, max_length=2, dead_letter_exchange="amq.fanout")
    declare(client)
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="x", type="direct", durable=True)
    if not defined_first:
        set_policy(rig.bench, max_length=2, dead_letter_exchange="amq.fanout")
    set_policy(rig.bench, "x", "^x$", 1, alternate_exchange="amq.direct")
    set_operator_policy(rig.bench, max_length=1)
    client.publish("q", b"1", delivery_mode=2)
    client.publish("q", b"2", delivery_mode=2)
    rig.write()
    disk.crash()
    rig = Rig(disk)
    queue, exchange = queue_of(rig.bench), rig.bench.broker.vhosts["/"].exchanges["x"]
    assert (queue.effect.policy, queue.effect.operator_policy) == ("p", "p")
    assert queue.effect.settings == {"max-length": 1, "dead-letter-exchange": "amq.fanout"}
    assert exchange.effect.policy == "x"
    assert exchange.alternate == "amq.direct"
    assert left(rig.bench.connect()) == [b"2"]
    clear_policy(rig.bench, "x")
    assert exchange.alternate is None


def test_a_start_leaves_nothing_to_be_looked_at() -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    client = rig.bench.connect()
    for number in range(2 * STEP):
        declare(client, f"q{number}")
    for number in range(20):
        set_policy(rig.bench, f"p{number}", max_length=number)
    rig.write()
    disk.crash()
    rig = Rig(disk)
    vhost = rig.bench.broker.vhosts["/"]
    assert not vhost.policies.is_changed
    assert len(vhost.queues) == 2 * STEP
    assert {queue.effect for queue in vhost.queues.values()} == {queue_of(rig.bench, "q0").effect}


# -- dead letters ------------------------------------------------------------------------------------------------------


def parked(bench: Bench, client: Client) -> Queue:
    """Return a quorum queue that keeps an undeliverable dead letter by policy."""
    declare(client, x_queue_type="quorum")
    set_policy(
        bench, pattern="^q$", dead_letter_exchange="", dead_letter_routing_key="grave", overflow="reject-publish",
        dead_letter_strategy="at-least-once", max_length=2,
    )  # fmt: skip
    client.publish("q", b"1", delivery_mode=2)
    got = client.call(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=got.number("delivery_tag"), requeue=False)
    queue = queue_of(bench)
    assert queue.undeliverable is not None
    assert queue.undeliverable.count() == 1
    return queue


def test_dead_letters_are_kept_by_policy_until_a_queue_takes_them() -> None:
    bench = Bench()
    client = bench.connect()
    parked(bench, client)
    declare(client, "grave")
    bench.pass_time(SECOND_US)
    assert int(queue_of(bench, "grave").count()) == 1


def test_dead_letters_that_are_kept_take_room_under_another_limit() -> None:
    bench = Bench()
    client = bench.connect()
    parked(bench, client)
    set_policy(
        bench, pattern="^q$", dead_letter_exchange="", dead_letter_routing_key="grave", overflow="reject-publish",
        dead_letter_strategy="at-least-once", max_length=1,
    )  # fmt: skip
    client.call(1, grammar.CONFIRM_SELECT)
    client.raw(publishes("q", b"2"))
    assert [word for word, _, _ in words(client)] == ["basic.nack"]


@pytest.mark.parametrize("reached", [False, True])
def test_dead_letters_that_need_not_be_kept_any_more_go_their_way_once(reached: bool) -> None:
    bench = Bench()
    client = bench.connect()
    queue = parked(bench, client)
    assert queue.undeliverable is not None
    declare(client, "grave")
    if reached:
        (message_list,) = queue.undeliverable.message_lists.values()
        message_list.note(message_list.ready.in_memory()[0], [queue_of(bench, "grave")])
    set_policy(bench, pattern="^q$", dead_letter_exchange="", dead_letter_routing_key="grave")
    assert not queue.keeps_undeliverable
    bench.pass_time(SECOND_US)
    assert int(queue_of(bench, "grave").count()) == (0 if reached else 1)
    assert queue.undeliverable.count() == 0
    bench.pass_time(10 * SECOND_US)
    assert int(queue_of(bench, "grave").count()) == (0 if reached else 1)


# -- times -------------------------------------------------------------------------------------------------------------


def test_the_time_to_go_begins_when_the_policy_comes_and_ends_when_it_goes() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    bench.pass_time(10 * SECOND_US)
    set_policy(bench, expires=5000)
    bench.pass_time(4 * SECOND_US)
    set_policy(bench, expires=2000)  # earlier than the timer that is already set
    bench.pass_time(SECOND_US)
    clear_policy(bench)
    bench.pass_time(60 * SECOND_US)
    set_policy(bench, expires=2000)
    bench.pass_time(2 * SECOND_US - 1)
    assert "q" in bench.broker.vhosts["/"].queues
    bench.pass_time(1)
    assert "q" not in bench.broker.vhosts["/"].queues


def test_a_shorter_time_to_go_is_not_waited_for_with_the_longer_one() -> None:
    bench = Bench()
    declare(bench.connect(), x_expires=100_000)
    set_policy(bench, expires=1000)
    bench.pass_time(SECOND_US)
    assert "q" not in bench.broker.vhosts["/"].queues


def test_a_consumer_timeout_by_policy_is_looked_for() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    client.publish("q")
    client.call(1, grammar.BASIC_GET, queue="q")
    set_policy(bench, consumer_timeout=1000)
    names = []
    for _ in range(40):
        bench.pass_time(SECOND_US // 20)
        client.peer.check_ack_timeouts(bench.now_us)
        names += client.methods()
    assert len(names) == 1


@pytest.mark.parametrize(("declared", "said", "timeout_ms"), [(None, 5, 5), (3, 5, 3), (7, 5, 5), ("x", 5, 5)])
def test_the_smaller_consumer_timeout_counts(declared: Any, said: int, timeout_ms: int) -> None:
    bench = Bench()
    declare(bench.connect(), **({} if declared is None else {"x_consumer_timeout": declared}))
    set_policy(bench, consumer_timeout=said)
    assert int(queue_of(bench).timeout_ms) == timeout_ms


# -- which queues are notified -----------------------------------------------------------------------------------------


def test_who_is_told_the_same_is_left_alone() -> None:
    bench = Bench()
    declare(bench.connect())
    set_policy(bench, expires=5000)
    bench.pass_time(3 * SECOND_US)
    set_policy(bench, "other", "nothing", 9, expires=1)
    set_policy(bench, "lower", "", -1, expires=1)
    set_policy(bench, expires=5000)
    bench.pass_time(2 * SECOND_US)
    assert "q" not in bench.broker.vhosts["/"].queues


def test_several_policies_of_one_turn_are_looked_at_together() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    client.raw(publishes("q", b"1", b"2", b"3"))
    value = {"vhost": "/", "pattern": "", "apply-to": "all"}
    bench.broker.definitions.put(POLICY, {**value, "name": "p", "priority": 0, "definition": {"max-length": 1}})
    bench.broker.definitions.put(POLICY, {**value, "name": "r", "priority": 1, "definition": {"max-length": 3}})
    bench.broker.end_turn(bench.now_us)
    assert bodies(bench, "q") == [b"1", b"2", b"3"]


def test_numbers_beyond_all_bounds_are_no_trouble() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    huge = (1 << 63) - 1
    set_policy(
        bench, message_ttl=huge, expires=huge, max_length=huge, max_length_bytes=huge, consumer_timeout=huge
    )
    client.publish("q", b"1")
    assert bodies(bench, "q") == [b"1"]
    queue = queue_of(bench)
    assert max(int(queue.ttl_us), int(queue.idle_us)) + bench.now_us < 1 << 63  # fits into 64 bits


# -- many queues, long queues ------------------------------------------------------------------------------------------


def many(bench: Bench) -> int:
    """Declare more queues than one turn checks and return their number."""
    client = bench.connect()
    count = 2 * STEP + 5
    client.raw(b"".join(method_frame(1, grammar.QUEUE_DECLARE, queue=f"q{number}") for number in range(count)))
    while client.peer.has_more:
        client.raw(b"")
    return count


def test_a_turn_looks_at_some_of_many_queues() -> None:
    bench = Bench()
    count = many(bench)
    vhost = bench.broker.vhosts["/"]
    set_policy(bench, expires=1)
    reached = sum(queue.effect is not NO_EFFECT for queue in vhost.queues.values())
    assert 0 < reached <= STEP
    vhost.delete_queue(next(queue for queue in vhost.queues.values() if queue.effect is NO_EFFECT))
    while bench.broker.enforce_policies(bench.now_us):
        pass
    assert [queue.effect.policy for queue in vhost.queues.values()] == ["p"] * (count - 1)
    assert len({queue.effect for queue in vhost.queues.values()}) == 1


def test_what_changes_while_some_are_left_reaches_all() -> None:
    bench = Bench()
    count = many(bench)
    set_policy(bench, expires=1000)
    set_policy(bench, expires=2000)
    assert bench.broker.vhosts["/"].ungoverned
    clear_policy(bench)
    for _ in range(count // STEP + 1):
        bench.broker.end_turn(bench.now_us)
    assert all(queue.effect is NO_EFFECT for queue in bench.broker.vhosts["/"].queues.values())
    bench.pass_time(3 * SECOND_US)
    assert len(bench.broker.vhosts["/"].queues) == count


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_long_queue_is_cut_in_steps(is_restarted: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    client = rig.bench.connect()
    declare(client)
    count = 3 * int(TRIM_MAX)
    client.raw(publishes("q", *[b"%d" % number for number in range(count)], delivery_mode=2))
    set_policy(rig.bench, max_length=10)
    assert int(queue_of(rig.bench).count()) == count - int(TRIM_MAX)
    if is_restarted:
        rig.write()
        disk.crash()
        rig = Rig(disk)
    rig.bench.pass_time(0)
    rig.bench.pass_time(0)
    rig.bench.pass_time(0)
    assert bodies(rig.bench, "q") == [b"%d" % number for number in range(count - 10, count)]


@pytest.mark.parametrize(("pattern", "name", "matches"), [
    ("", "q", True), ("", "", True), ("^[[:alpha:]]+$", "abc", True), ("^[[:alpha:]]+$", "a1", False),
    ("^.$", "ü", False), ("^..$", "ü", True), ("\\Aq\\z", "q", True),
])  # fmt: skip
def test_patterns_are_those_of_permissions_but_the_empty_one_matches_all(
    pattern: str, name: str, matches: bool
) -> None:
    policy = Policy("p", {"pattern": pattern, "definition": {"max-length": 1}})
    assert policy.matches("classic", name) is matches


def chosen(policies: Policies, kind: str = "classic", name: str = "q") -> tuple[str, str, dict[str, Any]]:
    effect = policies.effect(kind, name)
    return effect.policy, effect.operator_policy, dict(effect.settings)


def said(priority: float = 0, **definition: Any) -> dict[str, Any]:
    return {"pattern": "", "priority": priority, "definition": {k.replace("_", "-"): v for k, v in definition.items()}}


def test_the_highest_priority_and_the_first_name_of_equals() -> None:
    policies = Policies()
    for name, priority in (("d", 1.5), ("c", 2), ("b", 2), ("a", -3)):
        policies.set(name, said(priority, max_length=1), False)
    found = []
    while chosen(policies)[0]:
        found.append(chosen(policies)[0])
        policies.set(found[-1], None, False)
    assert found == ["b", "c", "d", "a"]


def test_a_policy_that_sets_what_a_type_does_not_know_gives_way() -> None:
    policies = Policies()
    policies.set("it", said(9, max_length=1, delivery_limit=5), False)
    policies.set("other", said(0, max_length=2), False)
    assert [chosen(policies, kind)[0] for kind in ("classic", "quorum", "exchange")] == ["other", "it", "it"]


@pytest.mark.parametrize(("said_first", "operators"), [(1, 2), (2, 1)])
def test_an_operator_policy_limits_and_overrides_nothing(said_first: int, operators: int) -> None:
    policies = Policies()
    policies.set("p", said(max_length=said_first, overflow="reject-publish"), False)
    policies.set("o", said(max_length=operators, expires=5), True)
    both = {"max-length": 1, "overflow": "reject-publish", "expires": 5}
    assert chosen(policies) == ("p", "o", both)
    policies.set("p", None, False)
    assert chosen(policies) == ("", "o", {"max-length": operators, "expires": 5})
