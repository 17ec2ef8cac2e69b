"""/api/delayed on a fake control: the commands that result from path, query and body."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.control.refusal import CONFLICT, NOT_AUTHORISED, Refused

from .admin import MINE, Browser, missing


@pytest.fixture
def browse() -> Browser:
    browse = Browser()
    names = ("list_delayed", "list_delay_levels", "list_delayed_messages")
    browse.control.answers |= {name: lambda _: [] for name in names}
    browse.control.answers |= dict.fromkeys(("cancel_delayed", "retime_delayed"), lambda _: {"message_count": 3})
    return browse


async def test_rows(browse: Browser) -> None:
    answer = await browse("GET", "/api/delayed?destination=a&due_after_ms=5&due_before_ms=7&page=1&sort=messages")
    assert (answer.status_code, answer.json()) == (200, [])
    assert browse.control.fields_of("list_delayed") == {
        "destination": "a", "due_after_ms": 5, "due_before_ms": 7, "page": 1, "page_size": 100, "use_regex": False,
        "sort": "messages", "sort_reverse": False,
    }  # fmt: skip
    assert (await browse("GET", "/api/delayed?due_after_ms=soon")).status_code == 400


async def test_who_sees_what(browse: Browser) -> None:
    await browse("GET", "/api/delayed", user="plain")
    assert browse.control.fields_of("list_delayed") == {"vhosts": [MINE]}
    for path in ("/api/delayed/%2F", "/api/delayed/%2F/levels", "/api/delayed/%2F/messages"):
        assert (await browse("GET", path, user="plain")).status_code == 401
    assert (await browse("GET", f"/api/delayed/{MINE}/levels", user="plain")).status_code == 200
    assert browse.control.fields_of("list_delay_levels") == {"vhost": MINE, "vhosts": [MINE]}


SELECTED = "message_id=m&header=a=1&header=b=x=y&layout=nsb&parked=false"
FIELDS: dict[str, Any] = {
    "vhost": "/", "message_id": "m", "headers": {"a": "1", "b": "x=y"}, "layout": "nsb", "parked": False,
}  # fmt: skip


async def test_single_messages(browse: Browser) -> None:
    assert (await browse("GET", f"/api/delayed/%2F/messages?{SELECTED}&limit=7")).status_code == 200
    assert browse.control.fields_of("list_delayed_messages") == FIELDS | {"limit": 7}


async def test_cancel(browse: Browser) -> None:
    answer = await browse("DELETE", f"/api/delayed/%2F/messages?{SELECTED}&dry_run=true")
    assert (answer.status_code, answer.json()) == (200, {"message_count": 3})
    assert browse.control.fields_of("cancel_delayed") == FIELDS | {"dry_run": True, "user": "root"}


async def test_ids_and_their_times(browse: Browser) -> None:
    path = "/api/delayed/%2F/messages?without_header=run=2"
    body: dict[str, Any] = {"message_ids": ["a", "b"], "in_ms": 5}
    fields = {"vhost": "/", "user": "root", "without_headers": {"run": "2"}}
    assert (await browse("DELETE", path, json={"message_ids": ["a", "b"]})).status_code == 200
    assert browse.control.fields_of("cancel_delayed") == fields | {"message_ids": ["a", "b"]}
    assert (await browse("PUT", path, json=body)).status_code == 200
    assert browse.control.fields_of("retime_delayed") == fields | body
    browse.control.asked.clear()
    assert (await browse("PUT", path, json={"times": {"a": 7, "b": "8"}})).status_code == 200
    assert browse.control.fields_of("retime_delayed") == fields | {"times": {"a": 7, "b": 8}}
    for wrong in ({"times": {"a": "soon"}}, {"message_ids": "a"}, {"message_ids": [1]}, {"times": 5}):
        assert (await browse("PUT", path, json=wrong)).status_code == 400


async def test_retime(browse: Browser) -> None:
    path = "/api/delayed/%2F/messages?all=true"
    answer = await browse("PUT", path, json={"in_ms": "500", "other": 1})
    assert (answer.status_code, answer.json()) == (200, {"message_count": 3})
    assert browse.control.fields_of("retime_delayed") == {"vhost": "/", "all": True, "user": "root", "in_ms": 500}
    assert (await browse("PUT", path, json={"at_ms": "later"})).status_code == 400


@pytest.mark.parametrize("query", ["header=x", "header==1", "parked=perhaps", "limit=all"])
async def test_what_is_wrong_is_said(browse: Browser, query: str) -> None:
    answer = await browse("GET", f"/api/delayed/%2F/messages?{query}")
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


@pytest.mark.parametrize(("kind", "status"), [(CONFLICT, 400), (NOT_AUTHORISED, 401)])
async def test_a_refusal_is_told(browse: Browser, kind: str, status: int) -> None:
    def refuse(_: Any) -> Any:
        raise Refused(kind, "why")

    browse.control.answers["cancel_delayed"] = refuse
    answer = await browse("DELETE", "/api/delayed/%2F/messages?all=true")
    assert (answer.status_code, answer.json()["reason"]) == (status, "why")


async def test_no_such_virtual_host(browse: Browser) -> None:
    assert (await browse("DELETE", "/api/delayed/none/messages?all=true")).status_code == 404
    browse.control.answers["list_delayed"] = missing
    assert (await browse("GET", "/api/delayed/none")).status_code == 404
