"""Where a message would be routed, and what waits in queues, over HTTP and by `leveret ctl`, on a running broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from leveret.cli.ctl.group import command
from leveret.client import BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS
from ..waiting import until

STREAM = {"x-queue-type": "stream"}
# more than a stream's tail holds, so that some messages are in its files
COUNT = 3000


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path_factory.mktemp("data"), admin=True) as process:
        yield process


@pytest.fixture(scope="module")
def api(process: LeveretProcess) -> Iterator[httpx.Client]:
    """The HTTP API as guest, once it answers; there are also users with fewer permissions."""
    url = f"{process.admin_url}/api/"
    with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60, verify=NO_TLS) as client:
        until(lambda: _answers(client))
        for name, read in (("reader", "^looked$"), ("blind", "^nothing$")):
            client.put(f"users/{name}", json={"password": "secret", "tags": "management"}).raise_for_status()
            rights = {"configure": "^$", "write": "^$", "read": read}
            client.put(f"permissions/%2F/{name}", json=rights).raise_for_status()
        yield client


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("overview").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module", autouse=True)
def topology(process: LeveretProcess, api: httpx.Client) -> None:
    with BlockingConnection(process.url, reconnect=False) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.declare_queue("looked", durable=True)
        channel.declare_queue("streamed", durable=True, arguments=STREAM)
        channel.declare_exchange("looking", "headers", durable=True)
        channel.bind_queue("looked", "looking", "", arguments={"x-match": "all", "colour": "red"})
        for number in range(5):
            headers = {"colour": "red", "number": number}
            channel.publish(
                b"body %d" % number, "looking", "k", properties=Properties(headers=headers, message_id=f"m{number}")
            )
        for number in range(COUNT):
            channel.publish(b"%06d" % number + b"x" * 1000, "", "streamed")
        channel.wait_for_confirms()


def ctl(process: LeveretProcess, *arguments: str) -> Result:
    """Return the result, whether it succeeded or not."""
    environment = {"LEVERET_DATA_DIR": str(process.data_dir)}
    return CliRunner().invoke(command, list(arguments), env=environment, prog_name="ctl")


class TestExplain:
    def ask(self, api: httpx.Client, **asked: Any) -> httpx.Response:
        return api.post("explain/%2F", json=asked)

    def test_over_http(self, api: httpx.Client) -> None:
        told = self.ask(
            api, exchange="looking", properties={"headers": {"colour": "blue"}}, destination="looked"
        ).json()
        assert told["route"]["outcome"] == "unroutable"
        (row,) = told["route"]["exchanges"][0]["bindings"]["shown"]
        assert (row["matched"], row["reason"]) == (
            False,
            "x-match is all: header 'colour' is 'blue', the binding requires 'red'",
        )
        assert told["destination"]["reason"] == "none of its bindings matches the message"
        told = self.ask(api, exchange="looking", properties={"headers": {"colour": "red"}}).json()
        assert [each["queue"] for each in told["route"]["queues"]] == ["looked"]

    @pytest.mark.parametrize(
        ("asked", "status", "reason"),
        [
            ({}, 400, "[{key_missing,exchange}]"),
            ({"exchange": "looking", "limit": 0}, 400, "limit must be from 1 to 1000, not 0"),
            ({"exchange": "looking", "user": "nobody"}, 404, 'User "nobody" does not exist'),
            ({"exchange": "", "properties": {"headers": 5}}, 400, "headers must be a table"),
        ],
    )
    def test_wrong_questions(self, api: httpx.Client, asked: dict[str, Any], status: int, reason: str) -> None:
        answer = self.ask(api, **asked)
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)

    def test_whose_permissions(self, process: LeveretProcess, api: httpx.Client) -> None:
        told = self.ask(api, exchange="looking", user="blind").json()
        assert told["refusals"] == [
            "403 ACCESS_REFUSED - access to exchange 'looking' in vhost '/' refused for user 'blind'"
            " (no write permission)"
        ]
        with httpx.Client(base_url=f"{process.admin_url}/api/", auth=("blind", "secret"), verify=NO_TLS) as blind:
            assert blind.post("explain/%2F", json={"exchange": "looking", "user": "blind"}).status_code == 200
            assert blind.post("explain/%2F", json={"exchange": "looking", "user": "guest"}).status_code == 401
            assert blind.post("explain/elsewhere", json={"exchange": "looking"}).status_code == 404

    def test_by_ctl(self, process: LeveretProcess) -> None:
        done = ctl(process, "explain_route", "looking", "k", "--headers", '{"colour": "blue"}', "-q")
        assert done.exit_code == 0
        assert (
            "- key '' -> queue looked: x-match is all: header 'colour' is 'blue', the binding requires 'red'"
            in done.stdout
        )
        done = ctl(process, "explain_route", "", "looked", "--json")
        assert json.loads(done.stdout)["route"]["outcome"] == "routed"
        assert "--headers is not valid JSON" in ctl(process, "explain_route", "looking", "--headers", "{").stderr
        assert "must be an object" in ctl(process, "explain_route", "looking", "--properties", "[]").stderr


class TestBrowse:
    def test_over_http(self, api: httpx.Client) -> None:
        told = api.get("queues/%2F/looked/messages", params={"offset": 1, "limit": 2}).json()
        assert [(item["offset"], item["payload"]) for item in told["items"]] == [(1, "body 1"), (2, "body 2")]
        assert told["next_offset"] == 3
        found = api.get("queues/%2F/looked/messages", params={"text": "M3", "state": "ready"}).json()["items"]
        assert [item["properties"]["message_id"] for item in found] == ["m3"]
        assert api.get("queues/%2F/looked").json()["messages_ready"] == 5

    def test_a_body_as_a_file(self, api: httpx.Client) -> None:
        (item,) = api.get("queues/%2F/looked/messages", params={"offset": 4}).json()["items"]
        answer = api.get(f"queues/%2F/looked/messages/{item['place']}/body")
        assert answer.content == b"body 4"
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == f'attachment; filename="message-{item["place"]}.bin"'
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert api.get("queues/%2F/looked/messages/0-999999").status_code == 404
        assert api.get("queues/%2F/looked/messages/here").status_code == 400

    def test_a_stream_from_its_files_and_its_tail(self, api: httpx.Client) -> None:
        for offset in (0, 1234, COUNT - 1):
            (item,) = api.get("queues/%2F/streamed/messages", params={"offset": offset, "limit": 1}).json()["items"]
            assert (item["offset"], item["payload"][:6]) == (offset, f"{offset:06d}")
        (item,) = api.get("queues/%2F/streamed/messages", params={"text": "002718xxx", "limit": 5}).json()["items"]
        assert item["offset"] == 2718
        assert api.get("queues/%2F/streamed/messages/17/body").content[:6] == b"000017"

    def test_who_may_look(self, process: LeveretProcess, api: httpx.Client) -> None:
        def status(name: str, path: str) -> int:
            return httpx.get(f"{process.admin_url}/api/{path}", auth=(name, "secret"), verify=NO_TLS).status_code

        assert status("reader", "queues/%2F/looked/messages") == 200
        assert status("blind", "queues/%2F/looked/messages") == 401
        assert status("blind", "queues/%2F/looked/messages/0-1/body") == 401
        assert api.get("queues/%2F/nowhere/messages").status_code == 404
        for wrong in ({"limit": 0}, {"offset": "x"}, {"state": "other"}, {"truncate": 1 << 30}):
            assert api.get("queues/%2F/looked/messages", params=wrong).status_code == 400

    def test_by_ctl(self, process: LeveretProcess, tmp_path: Path) -> None:
        done = ctl(process, "browse_queue", "looked", "--limit", "2", "--formatter", "json", "-q")
        assert [row["payload"] for row in json.loads(done.stdout)] == ["body 0", "body 1"]
        done = ctl(process, "browse_queue", "looked", "--text", "m4", "-q", "--no-table-headers")
        assert done.stdout.count("\n") == 1
        assert ctl(process, "browse_queue", "nowhere").exit_code == 69
