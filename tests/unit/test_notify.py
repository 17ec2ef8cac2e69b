"""Notifications to systemd, received on a socket of the test."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.net.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.setblocking(False)
        yield heard


def environment(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


def heard(manager: socket.socket) -> list[str]:
    found = []
    try:
        while True:
            found.append(manager.recv(4096).decode())
    except BlockingIOError:
        return found


def test_each_word_is_a_datagram(manager: socket.socket) -> None:
    variables = environment(manager, WATCHDOG_USEC="1000", OTHER="x")
    notifier = Notifier(variables)
    assert variables == {"OTHER": "x"}  # child processes cannot notify in the broker's name
    notifier.ready("listening")
    notifier.reloading()
    notifier.stopping()
    ready, reloading, stopping = heard(manager)
    assert ready == "READY=1\nSTATUS=listening"
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert stopping == "STOPPING=1\nSTATUS=stopping"


def test_an_abstract_address() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0leveret-{os.getpid()}")
        manager.setblocking(False)
        Notifier({"NOTIFY_SOCKET": f"@leveret-{os.getpid()}"}).status("well")
        assert heard(manager) == ["STATUS=well"]


@pytest.mark.parametrize("variables", [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}, {"WATCHDOG_USEC": "1000"}])
async def test_nobody_who_listens_is_no_error(variables: dict[str, str]) -> None:
    notifier = Notifier(dict(variables))
    notifier.ready("")
    notifier.watch(asyncio.get_running_loop())


async def test_signs_of_life_come_while_the_loop_turns(manager: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    Notifier(environment(manager, WATCHDOG_USEC="3000", WATCHDOG_PID=str(os.getpid()))).watch(loop)
    for _ in range(4):
        assert await loop.sock_recv(manager, 4096) == b"WATCHDOG=1"


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "3000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
def test_nobody_watches(manager: socket.socket, more: dict[str, str]) -> None:
    with asyncio.Runner() as runner:
        Notifier(environment(manager, **more)).watch(runner.get_loop())
    assert heard(manager) == []


async def test_a_loop_that_hangs_gives_no_sign_of_life(manager: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    Notifier(environment(manager, WATCHDOG_USEC="3000")).watch(loop)
    assert await loop.sock_recv(manager, 4096) == b"WATCHDOG=1"
    heard(manager)
    time.sleep(0.05)  # noqa: ASYNC251 - this is the hanging, for many times the interval
    assert heard(manager) == []
    assert await loop.sock_recv(manager, 4096) == b"WATCHDOG=1"
