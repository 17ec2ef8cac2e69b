"""leveret publish, consume, get, request, declare, bind, unbind, delete and purge, on leveret and on RabbitMQ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leveret.cli.main import main
from leveret.client import BlockingChannel, BlockingConnection, Properties, Unroutable

BINARY = bytes(range(256))
class Shell:
    """shell("publish", shell.q, "body", input=…) runs a command; q, r, x and y are names that no other test uses."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.q, self.r, self.x, self.y = (f"shell.{name}.{uuid.uuid4().hex[:8]}" for name in "qrxy")

    def __call__(self, *words: str, status: int = 0, input: str | bytes = "") -> Result:
        done = CliRunner().invoke(main, list(words), input=input, env={"LEVERET_URL": self.url})
        assert done.exit_code == status, done.output
        return done


@pytest.fixture
def shell(url: str) -> Iterator[Shell]:
    """A shell whose queue q is there and empty."""
    shell = Shell(url)
    shell("declare", "queue", shell.q)
    yield shell
    for name in (shell.q, shell.r):
        shell("delete", "queue", name)
    for name in (shell.x, shell.y):
        shell("delete", "exchange", name)


def test_a_message_goes_in_and_comes_out(shell: Shell) -> None:
    done = shell("publish", shell.q, "hello", "--header", "who=me", "--header", "n:=5", "--message-id", "m1")
    assert done.output.startswith("1 message published and confirmed in ")
    shown = shell("get", shell.q, "--requeue", "-v").output
    assert [line.strip() for line in shown.splitlines()] == [
        f"(default) → {shell.q}  5 octets", "delivery_mode: 2, message_id: m1", "who: me, n: 5", "hello",
    ]  # fmt: skip
    assert json.loads(shell("get", shell.q, "--json").output) == {
        "exchange": "", "routing_key": shell.q, "properties": {"delivery_mode": 2, "message_id": "m1"},
        "headers": {"who": "me", "n": 5}, "body": "hello",
    }  # fmt: skip
    assert shell("get", shell.q, status=1).output == f"queue '{shell.q}' is empty\n"


def test_bodies_from_files_lines_and_standard_input(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(BINARY)
    shell("publish", shell.q, "--file", str(tmp_path / "binary"), "--file", str(tmp_path / "binary"))
    shell("publish", shell.q, "--lines", input="one\ntwo\r\n")
    shell("publish", shell.q, input="all\nof it\n")
    shell("publish", shell.q, "no. {{count}}", "-n", "2", "--template", "--message-id", "{{count}}")
    done = shell("consume", shell.q, "-n", "7")
    assert done.stdout_bytes == BINARY + b"\n" + BINARY + b"\none\ntwo\nall\nof it\n\nno. 1\nno. 2\n"
    assert "no such" in shell("publish", shell.q, "--file", str(tmp_path / "no such"), status=2).output


def test_what_was_consumed_as_json_is_published_again(shell: Shell) -> None:
    shell("declare", "exchange", shell.x, "--type", "topic")
    shell("bind", shell.x, shell.q, "--key", "a.#")
    with BlockingConnection(shell.url, reconnect=False) as connection, connection.channel() as channel:
        properties = Properties("text/plain", "gzip", {"h": [1, "x"]}, 1, 3, "c", "r", "60000", "m", 4, "t", app_id="a")
        for body in (b"text", BINARY):
            channel.publish(body, shell.x, "a.b", properties)
        channel.flush()
    first = shell("consume", shell.q, "-n", "2", "--json").output
    assert json.loads(shell("publish", "--json-lines", "--json", input=first).output)["confirmed"] == 2
    assert shell("consume", shell.q, "-n", "2", "--json").output == first


@pytest.mark.parametrize(("line", "text"), [
    ("{", "line 2 of standard input: it is not JSON"), ("[]", "it is not an object"),
    ('{"bodies": 1}', "it has unknown keys: bodies; known are body, body_base64, exchange"),
    ('{"properties": {"prio": 1}}', "there are no properties prio; there are content_type"),
    ('{"body_base64": "?"}', "body_base64 is not base64"), ('{"routing_key": 1}', "routing_key is a text"),
    ('{"headers": []}', "properties and headers are objects"), ("{}", "a line has no routing_key"),
])  # fmt: skip
def test_lines_that_are_no_message(shell: Shell, line: str, text: str) -> None:
    lines = json.dumps({"routing_key": shell.q}) + f"\n{line}\n"
    assert text in shell("publish", "--json-lines", input=lines, status=2).output


def test_what_no_queue_takes(shell: Shell) -> None:
    text = "312 NO_ROUTE: the default exchange has no queue for routing key 'nowhere'\n"
    assert shell("publish", "nowhere", "x", status=1).output == text
    shell("publish", "nowhere", "x", "--optional")
    assert shell("request", "nowhere", "x", status=1).output == text
    assert "404 NOT_FOUND - no exchange 'none'" in shell("publish", "k", "x", "-e", "none", status=1).output
    assert "404 NOT_FOUND - no queue 'none'" in shell("consume", "none", status=1).output
    shell("declare", "queue", "full", "--argument", "x-max-length:=0", "--argument", "x-overflow=reject-publish")
    assert "the broker refused the message (basic.nack)" in shell("publish", "full", shell.x, status=1).output


def test_requests_and_replies(shell: Shell) -> None:
    def serve() -> None:
        with BlockingConnection(shell.url, reconnect=False) as connection, connection.channel() as channel:
            channel.consume(shell.q, no_ack=True)
            for _ in range(2):
                asked = channel.next_delivery(60)
                assert asked is not None
                given = asked.properties
                answer = Properties(correlation_id=given.correlation_id, headers=given.headers)
                channel.publish(asked.body.upper(), "", str(given.reply_to), answer)
            channel.flush()

    server = threading.Thread(target=serve)
    server.start()
    assert shell("request", shell.q, "ping", "pong").output == "PING\nPONG\n"
    server.join(60)
    assert "no reply to request" in shell("request", shell.q, "x", "--timeout-s", "0.01", status=1).output


def test_objects(shell: Shell) -> None:
    declared = shell("declare", "queue", shell.r, "--type", "quorum", "--argument", "x-max-length:=10", "--json").output
    assert json.loads(declared) == {"queue": shell.r, "messages": 0, "consumers": 0}
    assert "406 PRECONDITION_FAILED" in shell("declare", "queue", shell.r, status=3).output
    assert shell("declare", "queue", shell.r, "--passive").output == f"queue '{shell.r}': 0 messages, 0 consumers\n"
    assert shell("declare", "exchange", shell.x, "--type", "fanout").output == f"exchange '{shell.x}'\n"
    assert shell("declare", "exchange", shell.y).output == f"exchange '{shell.y}'\n"
    assert shell("bind", shell.x, shell.y, "--to-exchange").output == f"'{shell.x}' is bound to '{shell.y}'\n"
    assert shell("bind", shell.y, shell.r, "--key", "k").output == f"'{shell.y}' is bound to '{shell.r}'\n"
    shell("publish", "k", "1", "2", "-e", shell.x)
    text = f"'{shell.x}' is not bound to '{shell.y}' with this key\n"
    assert shell("unbind", shell.x, shell.y, "--to-exchange").output == text
    assert f"312 NO_ROUTE: exchange '{shell.x}'" in shell("publish", "k", "3", "-e", shell.x, status=1).output
    shell("unbind", shell.y, shell.r, "--key", "k")
    shell("publish", shell.q, "x")
    assert shell("purge", shell.r).output == f"2 messages of queue '{shell.r}' removed\n"
    assert shell("delete", "queue", shell.r).output == f"queue '{shell.r}' deleted, with 0 messages\n"
    assert "406 PRECONDITION_FAILED" in shell("delete", "queue", shell.q, "--if-empty", status=3).output
    assert shell("delete", "exchange", shell.x, "--json").output == json.dumps({"exchange": shell.x}) + "\n"
    assert shell("delete", "exchange", shell.y, "--if-unused").output == f"exchange '{shell.y}' deleted\n"


@pytest.mark.parametrize("words", [
    ("publish",), ("publish", "q", "x", "--lines"), ("publish", "q", "x", "--header", "h"), ("consume",),
    ("publish", "q", "x", "--header", "h:=x"), ("consume", "q", "-e", "x"), ("consume", "q", "-k", "x"),
    ("publish", "q", "x", "--url", "http://x"),
])  # fmt: skip
def test_wrong_options(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, list(words))
    assert (done.exit_code, done.output[:7]) == (2, "Usage: ")


def routed(channel: BlockingChannel, exchange: str) -> bool:
    """Publish a message with both keys of the command; return whether a queue has taken it."""
    channel.publish(b"first", exchange, "a.b", mandatory=True)
    try:
        channel.wait_for_confirms(60)
    except Unroutable:
        return False
    return True


def test_what_passes_an_exchange_until_ctrl_c(shell: Shell) -> None:
    shell("declare", "exchange", shell.x, "--type", "topic")
    command = [sys.executable, "-m", "leveret.cli.main", "consume", "-e", shell.x, "-k", "b", "-k", "a.*"]
    environment = {**os.environ, "LEVERET_URL": shell.url, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        with BlockingConnection(shell.url, reconnect=False) as connection, connection.channel() as channel:
            channel.confirm_select()
            while not routed(channel, shell.x):
                pass  # until the command's queue is there
            channel.publish(b"not wanted", shell.x, "c")
            channel.publish(b"last", shell.x, "a.c")
            channel.flush()
            lines = iter(reader.stdout.readline, "last\n")
            assert set(lines) == {"first\n"}
        reader.send_signal(signal.SIGINT)
        assert reader.wait(60) == 0


def test_a_reader_that_ends_early_loses_nothing(shell: Shell) -> None:
    shell("publish", shell.q, "--lines", input="".join(f"{number}\n" for number in range(50)))
    shell("consume", shell.q, "-n", "10")
    assert shell("purge", shell.q).output == f"40 messages of queue '{shell.q}' removed\n"
    shell("publish", shell.q, "x")
    done = shell("consume", shell.q, "-n", "2", "--timeout-s", "0.05", status=1)
    assert "1 message came, of 2: none for 0.05 s" in done.output
