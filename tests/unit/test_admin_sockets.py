"""Where the HTTP API listens: addresses that a predecessor still holds, and dependencies that are not installed."""

from __future__ import annotations

import errno
import importlib.util
import socket
import sys
from typing import cast

import pytest

from leveret.admin import process
from leveret.cli import admin
from leveret.cli.admin import AdminRefused, AdminSettings

ASKED = AdminSettings("127.0.0.1", 15672, None, None, ())
OFFERED = AdminSettings(None, None, None, None, ())


class Address:
    """An address that is in use for the first `busy` attempts to bind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: int, number: int = errno.EADDRINUSE) -> None:
        self.busy = busy
        self.number = number
        self.pauses = 0
        monkeypatch.setattr(admin, "bind", self._bind)

    def _bind(self, host: str, port: int) -> socket.socket:
        self.busy -= 1
        if self.busy >= 0:
            raise OSError(self.number, "not yours")
        return cast(socket.socket, (host, port))

    async def pause(self) -> None:
        self.pauses += 1


@pytest.mark.parametrize("settings", [ASKED, OFFERED])
async def test_after_a_kill_an_address_in_use_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, settings: AdminSettings
) -> None:
    address = Address(monkeypatch, 7)
    assert await admin.admin_sockets(settings, True, address.pause) == {"http": ("127.0.0.1", 15672)}
    assert address.pauses == 7


async def test_it_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = Address(monkeypatch, 1 << 30)
    with pytest.raises(AdminRefused) as refused:
        await admin.admin_sockets(ASKED, True, address.pause)
    assert refused.value.status == 4
    assert address.pauses == admin.WAITS_MAX
    assert await admin.admin_sockets(OFFERED, True, address.pause) == {}
    assert caplog.messages[-1].startswith("HTTP API is disabled: can't listen on 127.0.0.1 port 15672")


@pytest.mark.parametrize(("was_killed", "number"), [(False, errno.EADDRINUSE), (True, errno.EADDRNOTAVAIL)])
async def test_what_no_killed_broker_holds_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, was_killed: bool, number: int
) -> None:
    address = Address(monkeypatch, 1, number)
    with pytest.raises(AdminRefused, match=r"can't listen on 127\.0\.0\.1 port 15672"):
        await admin.admin_sockets(ASKED, was_killed, address.pause)
    assert address.pauses == 0


@pytest.mark.parametrize(("gone", "what"), [
    ({"uvicorn"}, "uvicorn is not installed"), ({"starlette", "uvicorn"}, "starlette and uvicorn are not installed"),
])  # fmt: skip
async def test_what_is_not_installed_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gone: set[str], what: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None if name in gone else find(name))  # type: ignore[attr-defined]
    cure = f"install with: {sys.executable} -m pip install {' '.join(sorted(gone))}"
    for settings, option in (
        (ASKED._replace(host=None), "--admin-port"), (OFFERED._replace(tls_port=1), "--admin-tls-port"),
        (OFFERED._replace(metrics_port=1), "--metrics-port"), (OFFERED._replace(host="h"), "--admin-host"),
    ):  # fmt: skip
        with pytest.raises(AdminRefused) as refused:
            await admin.admin_sockets(settings, False)
        text = str(refused.value)
        assert refused.value.status == 2
        assert all(part in text for part in (f"the broker did not start: {option} requires", what, cure)), text
    assert await admin.admin_sockets(OFFERED, False) == {}
    assert all(part in caplog.messages[-1] for part in ("HTTP API and web page are disabled", what, cure))
    assert await admin.admin_sockets(OFFERED._replace(port=0), False) == {}


def test_nothing_is_missing_here() -> None:
    assert process.missing() == ""


