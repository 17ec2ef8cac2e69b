"""When a server seals no streams."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leveret.net.disk.tables import Tables


@pytest.fixture
async def server() -> Any:
    """The part of a server that tables use."""
    return SimpleNamespace(
        loop=asyncio.get_running_loop(), streams=SimpleNamespace(archives={}), now_us=lambda: 7,
        stopping=asyncio.Event(), alarms=SimpleNamespace(is_low_on_disk=False),
    )  # fmt: skip


def looks(it: Tables, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the times at which sealing looks for due work."""
    found: list[int] = []
    monkeypatch.setattr(it.sealing, "look", found.append)
    return found


async def test_while_the_disk_is_nearly_full(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it = Tables(server, str(tmp_path))
    found = looks(it, monkeypatch)
    server.alarms.is_low_on_disk = True
    it._look()
    assert found == []
    server.alarms.is_low_on_disk = False
    it._look()
    assert found == [7]
    await it.stop()


async def test_while_the_server_stops(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that write to files have ended by then."""
    it = Tables(server, str(tmp_path))
    found = looks(it, monkeypatch)
    server.stopping.set()
    it._look()
    await it.stop()
    it._look()
    assert found == []


async def test_streams_that_come_later_are_sealed(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealing starts with the first stream."""
    found: list[int] = []
    it = Tables(server, str(tmp_path))
    it._look()
    assert it._sealing is None
    monkeypatch.setattr("leveret.net.disk.sealing.Sealing.look", lambda self, now_us: found.append(now_us))
    server.streams.archives[1] = object()
    it._look()
    assert found == [7]
    await it.stop()
