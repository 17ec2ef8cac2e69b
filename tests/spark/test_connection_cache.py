"""Connections that a process keeps from task to task."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.client import BlockingConnection
from leveret.spark import connection_cache
from leveret.spark.connection_cache import cached_connection


def connect(url: str, name: str) -> BlockingConnection:
    return BlockingConnection(url, name=name, reconnect=False)


@pytest.fixture(autouse=True)
def nothing_idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    idle: dict[str, tuple[str, BlockingConnection]] = {}
    monkeypatch.setattr(connection_cache, "_idle", idle)
    yield
    for _, connection in idle.values():
        connection.close()


def test_tasks_of_a_process_share_a_connection_while_it_works(broker: str) -> None:
    with cached_connection(broker, "a", connect) as first:
        first.channel().close()
    with cached_connection(broker, "a", connect) as second:
        assert second is first
        second.close()
    with cached_connection(broker, "a", connect) as third:
        assert not third.is_closed
    with pytest.raises(ValueError, match="the task failed"), cached_connection(broker, "a", connect):
        raise ValueError("the task failed")
    assert third.is_closed
    with cached_connection(broker, "a", connect) as fourth:
        assert not fourth.is_closed


def test_tasks_of_other_names_have_others(broker: str) -> None:
    with cached_connection(broker, "a", connect) as first:
        pass
    with cached_connection(broker, "b", connect) as second:
        assert second is not first
    with cached_connection(broker, "a", connect) as third:
        assert third is first


def test_who_has_one_has_it_alone_and_one_is_kept(broker: str) -> None:
    with cached_connection(broker, "a", connect) as first:
        with cached_connection(broker, "a", connect) as second:
            assert second is not first
        assert not second.is_closed
    assert first.is_closed
    with cached_connection(broker, "a", connect) as third:
        assert third is second


def test_another_broker_is_connected_anew(broker: str) -> None:
    with cached_connection(broker, "a", connect) as first:
        pass
    with cached_connection(f"{broker}?heartbeat=7", "a", connect) as second:
        assert second is not first
    assert first.is_closed
