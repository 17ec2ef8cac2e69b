"""Origin of HTTP API requests: pages of other sites in a local browser, and proxies."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from leveret.admin.origin import is_direct
from leveret.control.passwords import authenticated
from leveret.control.refusal import Refused
from leveret.net.connections.logins import Logins

from .admin import Browser
from .support import Bench


def request(**headers: str) -> Request:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "headers": sent})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:15672",
        "127.0.0.1:15672",
        "[::1]:15672",
        "::1",
        "192.168.0.5",
        "broker.localhost",
        "",
    ],
)
def test_the_machine_itself_is_asked_for(host: str) -> None:
    assert is_direct(request(host=host))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:15672"},
        {"host": "localhost.evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "[::1"},
        {"host": "a@evil.example"},
        {"host": "localhost", "x_forwarded_for": "10.0.0.1"},
        {"host": "localhost", "forwarded": "for=10.0.0.1"},
        {"host": "localhost", "via": "1.1 proxy"},
        {"host": "localhost", "x_real_ip": "127.0.0.1"},
    ],
)
def test_somebody_stands_between(headers: dict[str, str]) -> None:
    assert not is_direct(request(**headers))


async def test_the_broker_hears_of_who_stands_between() -> None:
    browse = Browser()
    heard: list[object] = []
    login = browse.control.answers["authenticate"]
    browse.control.answers["authenticate"] = lambda fields: (
        heard.append(fields.get("is_direct", True)),
        login(fields),
    )[1]
    for host in ("localhost", "evil.example"):
        assert (await browse("GET", "/api/whoami", headers={"host": host})).status_code == 200
    assert heard == [True, False]


class Operator:
    """The part of a node that a login uses."""

    def __init__(self) -> None:
        self.broker = Bench().broker
        self.host = self
        self.logins = Logins(self.broker, self.now_us, lambda peer: None)

    def now_us(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("address", "is_direct", "may"),
    [
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("::1", True, True),
        ("127.0.0.1", False, False),
        ("10.0.0.1", True, False),
        ("::ffff:10.0.0.1", True, False),
        ("fe80::1%eth0", True, False),
        ("name", True, False),
    ],
)
async def test_guest_comes_from_this_machine_only(address: str, is_direct: bool, may: bool) -> None:
    login = authenticated(Operator(), "guest", "guest", address, "http", is_direct)  # type: ignore[arg-type]
    if may:
        assert (await login).name == "guest"
        return
    with pytest.raises(Refused) as refused:
        await login
    assert refused.value.reason == "User can only log in via localhost"


@pytest.mark.parametrize(
    ("method", "origin", "status"),
    [
        ("PUT", "https://evil.example", 403),
        ("DELETE", "null", 403),
        ("DELETE", "http://test.evil.example", 403),
        ("PUT", "http://ops.example", 404),
        ("PUT", "http://test", 404),
        ("GET", "https://evil.example", 404),
    ],
)
async def test_pages_of_other_sites_change_nothing(method: str, origin: str, status: int) -> None:
    browse = Browser(origins=("http://ops.example",))
    answer = await browse(method, "/api/vhosts/none", headers={"origin": origin}, json={} if method != "GET" else None)
    if status == 403:
        assert answer.json() == {
            "error": "forbidden", "reason": "web pages of other origins may not make changes: see cors_origins",
        }  # fmt: skip
        assert browse.control.asked == []
    else:
        assert answer.status_code != 403


async def test_the_cookie_is_for_no_script_and_no_other_site() -> None:
    browse = Browser()
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = await browse("POST", "/api/login", None, content=b"username=root&password=secret", headers=form)
    assert answer.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict")
