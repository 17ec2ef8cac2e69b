"""Lists larger than any limit of a line or of memory go from the broker to the client while they are made."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from leveret.admin import answers
from leveret.admin.api import Api
from leveret.admin.cors import Cors
from leveret.control import control as controlling
from leveret.control.calls import client as control_client
from leveret.control.calls.client import AsyncControlClient
from leveret.control.calls.line import SOMEBODY, call_line
from leveret.control.calls.socket import ControlSocket
from leveret.control.control import AnswerBroken
from leveret.control.refusal import ANSWER_TOO_LONG, BUSY, Refused
from leveret.wire import grammar

from .asking import whole
from .test_queries import Rig

QUEUES = 300
FIRST = 2000  # octets, in place of 1 MiB
WHOLE = 5000  # in place of 64 MiB
LOGIN = {
    "host": "127.0.0.1", "authorization": "Basic " + b64encode(b"guest:guest").decode(), "accept-encoding": "identity",
}  # fmt: skip
LISTS = (
    "queues", "queues/%2F", "queues?columns=name", "queues?sort=name&sort_reverse=true", "exchanges", "exchanges/%2F",
    "bindings", "bindings/%2F", "exchanges/%2F/amq.fanout/bindings/source", "connections", "vhosts/%2F/connections",
    "connections/username/guest", "channels", "vhosts/%2F/channels", "consumers", "consumers/%2F", "definitions",
    "definitions/%2F", "all-configuration", "topology/%2F?limit=1000", "topology/%2F?exchange=amq.fanout&limit=1000",
)  # fmt: skip


@pytest.fixture(scope="module")
def rig() -> Rig:
    rig = Rig()
    for number in range(QUEUES):
        name = f"q{number:03}"
        rig.client.queue(name)
        rig.client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
        if number % 5 == 0:
            rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange=f"x{number:03}", type="direct")
            rig.client.call(1, grammar.BASIC_CONSUME, queue=name, consumer_tag=name)
    for _ in range(60):
        rig.connect()
    return rig


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "READ_OCTETS", 1000)


@asynccontextmanager
async def served(rig: Rig, path: Path, first: int = FIRST, whole: int = WHOLE) -> AsyncIterator[AsyncControlClient]:
    control = ControlSocket(rig.control, str(path))
    await control.listen()
    yield AsyncControlClient(str(path), first=first, whole=whole)
    await control.close()


async def get(client: AsyncControlClient, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(Api(client, Cors(())))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
        return await browser.request(method, f"/api/{path}", headers=LOGIN | headers)


def plain(value: Any) -> Any:
    """Normalize the order of keys."""
    return json.loads(json.dumps(value, sort_keys=True))


@pytest.mark.parametrize("path", LISTS)
async def test_a_list_of_any_length_is_the_same_as_one_that_is_had_whole(
    rig: Rig, tmp_path: Path, path: str
) -> None:
    async with served(rig, tmp_path, first=1 << 30) as client:
        expected = await get(client, path)
    async with served(rig, tmp_path) as client:
        long = await get(client, path)
        packed = await get(client, path, **{"accept-encoding": "gzip"})
        head = await get(client, path, "HEAD")
    assert len(expected.content) > FIRST, "this list is short: the test shows nothing"
    assert (long.status_code, packed.headers["content-encoding"]) == (200, "gzip")
    assert plain(long.json()) == plain(packed.json()) == plain(expected.json())
    assert (head.status_code, head.content) == (200, b"")
    assert "content-length" in expected.headers
    assert "content-length" not in long.headers  # sent before it was complete


async def test_what_must_be_had_whole_and_is_too_long_is_refused_and_the_next_call_is_answered(
    rig: Rig, tmp_path: Path
) -> None:
    async with served(rig, tmp_path) as client:
        with pytest.raises(Refused) as refused:
            await client.call("list_queues")
        assert refused.value.kind == ANSWER_TOO_LONG
        assert len(await client.call("list_queues", {"columns": ["name"], "page": 1})) > 0
        answer = await get(client, "bindings/%2F/e/amq.fanout/q/q000/~")
        assert answer.status_code == 200


async def test_no_more_of_a_list_is_made_than_is_taken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlling, "PIECE_OCTETS", 1)
    looked = 0
    look = controlling.COMMANDS["list_queues"].view  # type: ignore[attr-defined]

    def view(self: Any, node: Any, item: Any) -> Any:
        nonlocal looked
        looked += 1
        return look(self, node, item)

    monkeypatch.setattr(controlling.COMMANDS["list_queues"], "view", view)
    pieces = rig.control.answer(call_line("list_queues", {}, SOMEBODY))
    for _ in range(10):
        await anext(pieces)
    assert 5 <= looked <= 10


@pytest.mark.parametrize("command", ["list_queues", "list_bindings", "export_definitions", "get_topology"])
async def test_others_have_their_turn_while_a_list_is_made(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(controlling, "SLICE_NS", -1)  # a slice is over after each part
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    fields = {"limit": 1000} if command == "get_topology" else {}
    answer = json.loads(await whole(rig.control.answer(call_line(command, fields, SOMEBODY))))["ok"]
    counting.cancel()
    items = sum(len(each) for each in answer.values() if isinstance(each, list)) if command[0] in "eg" else len(answer)
    assert items >= QUEUES
    assert turns >= items


async def test_slow_readers_of_long_lists_hold_up_nobody_else(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_client, "LONG_MAX", 2)
    async with served(rig, tmp_path) as client:
        slow = [(await client.begin("list_queues", {}, SOMEBODY))[1] for _ in range(2)]
        with pytest.raises(Refused) as refused:
            await client.begin("list_queues", {}, SOMEBODY)
        assert refused.value.kind == BUSY
        answer = await get(client, "queues")
        assert (answer.status_code, answer.json()["error"]) == (503, "service_unavailable")
        assert (await get(client, "queues?page=1&page_size=1")).status_code == 200
        assert slow[0] is not None
        assert slow[1] is not None
        slow[0].close()
        assert len((await get(client, "queues")).json()) == QUEUES
        assert len(b"".join([piece async for piece in slow[1]])) > FIRST
        assert len((await get(client, "queues")).json()) == QUEUES


async def test_a_list_that_breaks_off_is_not_taken_for_a_whole_one(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    look = controlling.COMMANDS["list_queues"].view  # type: ignore[attr-defined]

    def view(self: Any, node: Any, item: Any) -> Any:
        if item[1] == "q250":
            raise RuntimeError("a defect")
        return look(self, node, item)

    monkeypatch.setattr(controlling.COMMANDS["list_queues"], "view", view)
    with pytest.raises(AnswerBroken):
        await whole(rig.control.answer(call_line("list_queues", {}, SOMEBODY)))
    sent = await sent_of(rig, tmp_path)
    assert sent[0]["status"] == 200
    assert all(message.get("more_body", True) for message in sent)  # the end is missing, so the connection is cut
    assert "response aborted" in caplog.records[-1].getMessage()


async def test_who_takes_nothing_is_let_go(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answers, "STALLED_S", 0)
    sent = await sent_of(rig, tmp_path, is_stuck=True)
    assert all(message.get("more_body", True) for message in sent)
    assert caplog.records[-1].getMessage() == "'/api/queues': response aborted: the client stopped reading"


async def sent_of(rig: Rig, path: Path, is_stuck: bool = False) -> list[Any]:
    """Return what an HTTP server gets for a request of the queues. `is_stuck`: it takes nothing of the body."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if is_stuck and message["type"] == "http.response.body":
            await asyncio.Event().wait()
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in LOGIN.items()]
    scope = {
        "type": "http", "method": "GET", "path": "/api/queues", "raw_path": b"/api/queues", "query_string": b"",
        "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http",
    }  # fmt: skip
    async with served(rig, path) as client:
        await Api(client, Cors(()))(scope, receive, send)
        assert client._long == 0
    return sent


def refusing(self: Any, node: Any) -> object:
    raise Refused("conflict", "not so")
    yield


@pytest.mark.parametrize("changes", [True, False])
async def test_what_is_refused_when_its_first_item_is_made_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    noted: list[str] = []

    async def settle() -> None:
        noted.append("settled")

    monkeypatch.setattr(rig.host, "settled", settle)
    monkeypatch.setattr(controlling.COMMANDS["list_users"], "run", refusing)
    monkeypatch.setattr(controlling.COMMANDS["list_users"], "changes", changes)
    line = await whole(rig.control.answer(call_line("list_users", {}, SOMEBODY)))
    assert json.loads(line) == {"error": "conflict", "reason": "not so"}
    assert len(noted) == changes
