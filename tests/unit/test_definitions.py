"""Operators' definitions are journalled and replayed, and stay away after removal."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.access.pattern import Pattern
from leveret.broker.storage.definitions import GLOBAL_PARAMETER, PERMISSION, USER, VHOST
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .rig import FILE_SIZE, Rig
from .support import Client


def names(rig: Rig, kind: str) -> list[object]:
    return [definition["name"] for definition in rig.bench.broker.definitions.all(kind)]


def fill_a_file(rig: Rig, client: Client) -> None:
    """Make the next record start a journal file with a snapshot; files without live messages are removed."""
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.publish("q", b"1" * FILE_SIZE, delivery_mode=2)
    rig.write()
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    rig.write()


@pytest.mark.parametrize("new_file", [False, True])
def test_what_was_removed_stays_away_and_what_was_put_comes_back(new_file: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    definitions = rig.bench.broker.definitions
    client = rig.bench.connect()
    if new_file:
        fill_a_file(rig, client)
    definitions.put(VHOST, {"name": "v"})
    definitions.put(VHOST, {"name": "w"})
    definitions.put(GLOBAL_PARAMETER, {"name": "g", "value": {"a": [1, 2.5, None, True, "x"]}})
    definitions.put(USER, {"name": "u", "tags": ["management"]})
    definitions.put(PERMISSION, {"user": "u", "vhost": "v", "configure": "a", "write": "b", "read": "c"})
    definitions.put(PERMISSION, {"user": "u", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"})
    client.peer.user = "u"
    rig.bench.broker.delete_vhost("w")
    rig.bench.broker.delete_user("guest")
    rig.write()
    if new_file:
        fill_a_file(rig, client)
        assert rig.journal.files()[0] >= 3  # the files with their definitions are gone
    disk.crash()
    rig = Rig(disk)
    definitions = rig.bench.broker.definitions
    assert names(rig, VHOST) == ["/", "v"] == list(rig.bench.broker.vhosts)
    assert names(rig, USER) == ["u"]
    assert definitions.get(GLOBAL_PARAMETER, "g") == {"name": "g", "value": {"a": [1, 2.5, None, True, "x"]}}
    user = rig.bench.broker.users.by_name["u"]
    assert user.may("write", "v", "b")
    assert not user.may("write", "v", "c")
    assert not user.may("write", "w", "b")
    assert definitions.all(PERMISSION) == [
        {"user": "u", "vhost": "v", "configure": "a", "write": "b", "read": "c"},
        {"user": "u", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    ]


def test_queues_of_all_virtual_hosts_have_numbers_of_their_own() -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    broker = rig.bench.broker
    for name in ("v", "w"):
        broker.definitions.put(VHOST, {"name": name})
        broker.definitions.put(
            PERMISSION, {"user": "guest", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"}
        )
        rig.write()
        client = rig.bench.connect(name)
        client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
        client.publish("q", name.encode(), delivery_mode=2)
    rig.write()
    disk.crash()
    broker = Rig(disk).bench.broker
    for name in ("v", "w"):
        assert [entry.content[-2:-1] for entry in broker.vhosts[name].queues["q"].in_memory()] == [name.encode()]


def test_a_definition_that_is_there_already_writes_nothing() -> None:
    rig = Rig(MemoryDisk())
    definitions = rig.bench.broker.definitions
    definitions.put(VHOST, {"name": "v"})
    rig.write()
    definitions.put(VHOST, {"name": "v"})
    assert not rig.bench.broker.log.size()
    assert not definitions.remove(VHOST, "missing")
    assert not rig.bench.broker.log.size()


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [("", "x", False), (".*", "", True), ("a", "bab", True), ("^a$", "bab", False), ("^$", "", True)],
)
def test_patterns_match_anywhere_and_the_empty_one_nowhere(pattern: str, name: str, matches: bool) -> None:
    assert Pattern(pattern).matches(name) is matches


@pytest.mark.parametrize("value", [1 << 64, {"x" * 256: 1}, "\ud800"])
def test_what_the_journal_could_not_hold_is_refused(value: Any) -> None:
    rig = Rig(MemoryDisk())
    definitions = rig.bench.broker.definitions
    definitions.put(GLOBAL_PARAMETER, {"name": "g", "value": 1})
    with pytest.raises(ValueError, match=r"64 bits|255|surrogates"):
        definitions.put(GLOBAL_PARAMETER, {"name": "g", "value": value})
    assert definitions.get(GLOBAL_PARAMETER, "g") == {"name": "g", "value": 1}


def test_what_the_journal_could_not_give_back_is_refused() -> None:
    rig = Rig(MemoryDisk())
    definitions = rig.bench.broker.definitions
    value: Any = {}
    for _ in range(100):
        value = {"a": value}
    with pytest.raises(ValueError, match="nested too deeply"):
        definitions.put(GLOBAL_PARAMETER, {"name": "g", "value": value})
    assert definitions.all(GLOBAL_PARAMETER) == []


@pytest.mark.parametrize(("first", "second"), [(1, True), (1, 1.0), (0, False)])
def test_what_only_python_takes_for_equal_is_a_change(first: Any, second: Any) -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    for value in (first, second):
        rig.bench.broker.definitions.put(GLOBAL_PARAMETER, {"name": "g", "value": value})
    rig.write()
    disk.crash()
    found = Rig(disk).bench.broker.definitions.get(GLOBAL_PARAMETER, "g")
    assert found is not None
    assert repr(found["value"]) == repr(second)
