"""/api/federation-links on a fake control: permissions, commands and their effect (RabbitMQ 3.10.8, measured)."""

from __future__ import annotations

from typing import Any

import pytest

from .admin import MINE, Browser, missing

NODE = "leveret@test"


def link(vhost: str, upstream: str, id: str) -> dict[str, Any]:
    return {"vhost": vhost, "exchange": "x", "upstream": upstream, "id": id, "status": "running"}


LINKS = [link("/", "b", "00000001"), link("/", "a", "00000002"), link(MINE, "c", "00000003"), link("/", "", "")]


@pytest.fixture
def browse() -> Browser:
    browse = Browser()
    browse.control.answers |= {
        "federation_status": lambda fields: [
            each for each in LINKS if fields.get("vhost") in (None, each["vhost"])
        ],
        "get_node": lambda fields: {"name": NODE} if fields["name"] == NODE else missing(fields),
    }
    names = [f"{verb}_federation_link" for verb in ("restart", "pause", "resume")]
    browse.control.answers |= dict.fromkeys(names, lambda _: None)
    return browse


def asked(browse: Browser) -> dict[str, Any]:
    return browse.control.fields_of("federation_status")


@pytest.mark.parametrize(("path", "fields"), [
    ("", {"only_down": False}),
    ("/%2F", {"only_down": False, "vhost": "/"}),
    ("/state/down/", {"only_down": True}),
    ("/state/down", {"only_down": True}),
    (f"/{MINE}/state/down", {"only_down": True, "vhost": MINE}),
])  # fmt: skip
async def test_which_links(browse: Browser, path: str, fields: dict[str, Any]) -> None:
    answer = await browse("GET", f"/api/federation-links{path}")
    assert answer.status_code == 200
    assert asked(browse) == fields


async def test_in_order_and_in_columns(browse: Browser) -> None:
    answer = await browse("GET", "/api/federation-links?columns=upstream")
    assert answer.json() == [{"upstream": name} for name in ("", "a", "b", "c")]
    answer = await browse("GET", "/api/federation-links?columns=upstream&sort=upstream&sort_reverse=true")
    assert answer.json() == [{"upstream": name} for name in ("c", "b", "a", "")]


async def test_monitors_see_the_links_of_their_virtual_hosts(browse: Browser) -> None:
    answer = await browse("GET", "/api/federation-links", user="watch")
    assert [each["id"] for each in answer.json()] == ["00000003"]
    for user in ("plain", "rules"):
        answer = await browse("GET", "/api/federation-links", user=user)
        assert (answer.status_code, answer.json()["reason"]) == (401, "Not monitor user")
    assert (await browse("GET", "/api/federation-links/nowhere", user="watch")).status_code == 404


def restart(vhost: str = "%2F", id: str = "00000001", node: str = NODE) -> str:
    return f"/api/federation-links/vhost/{vhost}/{id}/{node}/restart"


async def test_a_restart(browse: Browser) -> None:
    answer = await browse("OPTIONS", restart())
    assert answer.headers["allow"] == "HEAD, GET, DELETE, OPTIONS"
    for user in ("root", "rules"):  # those who may change the upstream; RabbitMQ allows monitors
        browse.control.asked.clear()
        answer = await browse("DELETE", restart(MINE, "00000003"), user=user)
        assert (answer.status_code, answer.content) == (204, b"")
        assert browse.control.fields_of("restart_federation_link") == {"vhost": MINE, "id": "00000003"}
    browse.control.asked.clear()
    assert (await browse("DELETE", restart(), user="rules")).status_code == 401
    assert (await browse("DELETE", restart(MINE, "00000003"), user="watch")).status_code == 401
    elsewhere = restart(node="leveret@elsewhere")
    for path in (restart(vhost=MINE), restart(id="00000009"), elsewhere, restart(vhost="nowhere")):
        answer = await browse("DELETE", path)
        assert (answer.status_code, answer.json()) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert not [name for name, _ in browse.control.asked if name == "restart_federation_link"]


def pause(vhost: str = MINE, id: str = "00000003", node: str = NODE) -> str:
    return f"/api/federation-links/vhost/{vhost}/{id}/{node}/pause"


@pytest.mark.parametrize(("verb", "command"), [("PUT", "pause_federation_link"), ("DELETE", "resume_federation_link")])
async def test_a_pause_is_for_those_who_may_change_the_upstream(browse: Browser, verb: str, command: str) -> None:
    for user in ("root", "rules"):
        browse.control.asked.clear()
        assert (await browse(verb, pause(), user=user)).status_code == 204
        assert browse.control.fields_of(command) == {"vhost": MINE, "id": "00000003"}
    browse.control.asked.clear()
    for user in ("watch", "plain"):
        assert (await browse(verb, pause(), user=user)).status_code == 401
    assert (await browse(verb, pause(vhost="%2F"), user="rules")).status_code == 401
    for path in (pause(id="00000001"), pause(node="leveret@elsewhere"), pause(vhost="nowhere")):
        assert (await browse(verb, path)).status_code == 404
    assert not [name for name, _ in browse.control.asked if name == command]
