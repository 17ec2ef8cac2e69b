"""Definitions go both ways between leveret and a real RabbitMQ: each boots with the other's export."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pika
import pika.exceptions
import pytest

from leveret.broker.access.users import MD5, SHA512, hash_password
from leveret.control.calls.client import ControlClient
from leveret.testing.processes import LeveretProcess, RabbitMQProcess, ServerProcess, free_port

from ..no_tls import NO_TLS

pytestmark = pytest.mark.needs("rabbitmq")

PLUGINS = ("rabbitmq_management", "rabbitmq_consistent_hash_exchange", "rabbitmq_federation")
UNICODE = "büro ☕"
PASSWORDS = {"alice": "päss wörd", UNICODE: "secret", "old": "older", "long": "512"}
canonical = msgspec.json.Encoder(order="deterministic").encode
Table = dict[str, list[dict[str, Any]]]

QUEUES: dict[str, tuple[dict[str, bool], dict[str, Any]]] = {
    "plain": ({"durable": True}, {}),
    "transient": ({}, {}),
    "auto": ({"durable": True, "auto_delete": True}, {}),
    "limited": ({"durable": True}, {"x-max-length": 1000, "x-max-length-bytes": 1 << 40, "x-overflow": "drop-head"}),
    "aging": ({"durable": True}, {"x-message-ttl": 3_600_000, "x-expires": 86_400_000}),
    "buried": ({"durable": True}, {"x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "d.e.a.d"}),
    "lazy": ({"durable": True}, {"x-queue-mode": "lazy"}),
    "classic": ({"durable": True}, {"x-queue-type": "classic", "x-queue-version": 1}),
    "priority": ({"durable": True}, {"x-max-priority": 9}),
    "single": ({"durable": True}, {"x-single-active-consumer": True}),
    "quorum": ({"durable": True}, {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-quorum-initial-group-size": 1}),
    "stream": (
        {"durable": True},
        {"x-queue-type": "stream", "x-max-age": "1D", "x-max-length-bytes": 1 << 40,
         "x-stream-max-segment-size-bytes": 1 << 20, "x-initial-cluster-size": 1},
    ),
    "strange": (
        {"durable": True},
        {"x-a": 1, "x-b": -2, "x-c": [True, {"d": "e"}], "x-t": datetime(2020, 1, 1, tzinfo=UTC), "x-l": 1 << 40},
    ),
    UNICODE: ({"durable": True}, {"x-ü": "ß"}),
}
EXCHANGES: dict[str, tuple[str, dict[str, bool], dict[str, Any]]] = {
    "direct": ("direct", {"durable": True}, {}),
    "fanout": ("fanout", {}, {}),
    "topic": ("topic", {"durable": True, "auto_delete": True}, {"x-ü": "ß"}),
    "headers": ("headers", {"durable": True}, {"alternate-exchange": "inner"}),
    "inner": ("fanout", {"durable": True, "internal": True}, {}),
    "hash": ("x-consistent-hash", {"durable": True}, {"hash-header": "h"}),
    UNICODE: ("direct", {"durable": True}, {}),
}
# source, destination, whether it is a queue, routing key, arguments
BINDINGS: list[tuple[str, str, bool, str, dict[str, Any]]] = [
    ("direct", "plain", True, "k", {}),
    ("direct", "plain", True, "", {}),
    ("direct", "quorum", True, "k", {"x": 1}),
    ("direct", "limited", True, "a b~c/ü", {}),
    ("fanout", "transient", True, "ignored", {}),
    ("fanout", "topic", False, "", {}),
    ("topic", "aging", True, "*.b.#", {}),
    ("topic", "lazy", True, "#", {"n": {"m": [1, "2"]}}),
    ("headers", "priority", True, "", {"x-match": "all", "a": 1, "b": "two", "c": True}),
    ("headers", "single", True, "", {"x-match": "any", "a": 1, "d": "1.5"}),
    ("inner", "classic", True, "", {}),
    ("hash", "auto", True, "10", {}),
    ("amq.topic", UNICODE, True, "ü.*", {}),
    (UNICODE, UNICODE, True, UNICODE, {}),
    ("amq.fanout", "buried", True, "", {}),
    ("direct", "stream", True, "k", {}),
    ("amq.topic", "stream", True, "#", {}),
]
PUBLISHES: list[tuple[str, str, dict[str, Any]]] = [
    ("", "plain", {}),
    ("", UNICODE, {}),
    ("direct", "k", {}),
    ("direct", "", {}),
    ("direct", "a b~c/ü", {}),
    ("direct", "nobody", {}),
    ("fanout", "a.b.c", {}),
    ("topic", "a.b", {}),
    ("topic", "b", {}),
    ("headers", "", {"a": 1, "b": "two", "c": True}),
    ("headers", "", {"a": 1}),
    ("headers", "", {"a": 2}),
    ("headers", "", {"d": "1.5", "x": None}),
    ("hash", "", {"h": "v"}),
    ("amq.topic", "ü.1", {}),
    ("amq.topic", "u.1", {}),
    (UNICODE, UNICODE, {}),
    ("amq.fanout", "", {}),
]
POLICY = {
    "pattern": "^aging|ü", "apply-to": "queues", "priority": 7,
    "definition": {
        "message-ttl": 60_000, "expires": 9_000_000, "max-length": 500, "max-length-bytes": 5_000_000,
        "overflow": "drop-head", "dead-letter-exchange": "dead", "dead-letter-routing-key": "x", "queue-mode": "lazy",
    },
}  # fmt: skip
UPSTREAM = {"uri": "amqp://127.0.0.1:1", "expires": 3_600_000, "prefetch-count": 10, "ack-mode": "on-confirm"}


class Rabbit(RabbitMQProcess):
    """RabbitMQ and its HTTP API."""

    def __init__(self) -> None:
        self.api_port = free_port()
        settings = f"management.tcp.port = {self.api_port}\nmanagement.tcp.ip = 127.0.0.1"
        super().__init__(plugins=PLUGINS, settings=settings)

    def request(self, method: str, path: str, body: object = None) -> Any:
        url = f"http://127.0.0.1:{self.api_port}/api/{path}"
        answer = httpx.request(method, url, json=body, auth=("guest", "guest"), timeout=60, verify=NO_TLS)
        assert answer.status_code < 400, answer.text
        return answer.json() if answer.content else None

    def exported(self) -> Table:
        table: Table = self.request("GET", "definitions")
        return table


def fill(rabbit: Rabbit) -> None:
    """Create everything that a definitions file can contain, as far as leveret and this version of RabbitMQ know it."""
    at = httpx.URL("/").copy_with  # quotes a path
    name = at(path=f"/{UNICODE}").raw_path.decode()[1:]
    rabbit.request("PUT", f"vhosts/{name}", {"description": "Büro", "tags": "a,b"})
    rabbit.request("PUT", "users/alice", {"password": PASSWORDS["alice"], "tags": "administrator, mine"})
    rabbit.request("PUT", f"users/{name}", {"password": PASSWORDS[UNICODE], "tags": ""})
    for user, algorithm in (("old", MD5), ("long", SHA512)):
        password_hash = hash_password(PASSWORDS[user], lambda count: b"salt", algorithm)
        body = {"password_hash": password_hash, "hashing_algorithm": algorithm, "tags": "monitoring"}
        rabbit.request("PUT", f"users/{user}", body)
    rabbit.request("PUT", "user-limits/long/max-connections", {"value": 100})
    for user in ("guest", "alice", name, "old", "long"):
        for vhost in ("%2F", name):
            body = {"configure": ".*", "write": "^(?!never).*", "read": ".*"}
            rabbit.request("PUT", f"permissions/{vhost}/{user}", body)
    rabbit.request("PUT", "topic-permissions/%2F/alice", {"exchange": "amq.topic", "write": "^ü", "read": ".*"})
    rabbit.request("PUT", "policies/%2F/Pölicy", POLICY)
    everything = {"pattern": ".*", "apply-to": "all", "priority": 0, "definition": {"federation-upstream-set": "all"}}
    rabbit.request("PUT", f"policies/{name}/everything", everything)
    short = {"max-age": "2h", "max-length-bytes": 5_000_000, "stream-max-segment-size-bytes": 1_000_000}
    of_streams = {"pattern": "^stream$", "apply-to": "queues", "priority": 1, "definition": short}
    rabbit.request("PUT", "policies/%2F/streams", of_streams)
    most = {"pattern": "^limited$", "apply-to": "queues", "priority": 1, "definition": {"max-length": 100}}
    rabbit.request("PUT", "operator-policies/%2F/most", most)
    rabbit.request("PUT", f"vhost-limits/{name}/max-queues", {"value": 100})
    rabbit.request("PUT", f"vhost-limits/{name}/max-connections", {"value": 50})
    upstream = {"component": "federation-upstream", "vhost": "/", "name": "there", "value": UPSTREAM}
    rabbit.request("PUT", "parameters/federation-upstream/%2F/there", upstream)
    rabbit.request("PUT", "global-parameters/mine", {"name": "mine", "value": {"a": [1, 2.5, True, "ü"], "b": {}}})
    for vhost in ("/", UNICODE):
        with connect(rabbit, "guest", "guest", vhost) as connection:
            channel = connection.channel()
            for exchange, (kind, flags, arguments) in EXCHANGES.items():
                channel.exchange_declare(exchange, kind, arguments=arguments, **flags)
            for queue, (flags, arguments) in QUEUES.items():
                channel.queue_declare(queue, arguments=arguments, **flags)
            for source, destination, is_queue, key, arguments in BINDINGS:
                if is_queue:
                    channel.queue_bind(destination, source, key, arguments)
                else:
                    channel.exchange_bind(destination, source, key, arguments)
            channel.queue_declare("mine", exclusive=True)


def connect(process: ServerProcess, user: str, password: str, vhost: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", process.port, vhost, credentials))


def check_logins(process: ServerProcess) -> None:
    for user, password in PASSWORDS.items():
        connect(process, user, password, UNICODE).close()
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(process, user, f"{password}!", UNICODE)


def deliveries(process: ServerProcess, vhost: str) -> dict[str, list[int]]:
    """Return queue -> publishes that it got; "nobody" has those that were returned."""
    with connect(process, "guest", "guest", vhost) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        found: dict[str, list[int]] = {"nobody": []}
        for index, (exchange, key, headers) in enumerate(PUBLISHES):
            properties = pika.BasicProperties(headers=headers, delivery_mode=2)
            try:
                channel.basic_publish(exchange, key, str(index).encode(), properties, mandatory=True)
            except pika.exceptions.UnroutableError:
                found["nobody"].append(index)
        for queue, (_, arguments) in QUEUES.items():
            if arguments.get("x-queue-type") == "stream":
                found[queue] = streamed(channel, queue)
                continue
            found[queue] = []
            while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
                found[queue].append(int(body))
        return found


def streamed(channel: Any, stream: str) -> list[int]:
    """Return what a stream got since the last call; each call publishes a marker."""
    mark = uuid.uuid4().bytes
    channel.basic_publish("", stream, mark)
    channel.basic_qos(prefetch_count=100)
    found: list[int] = []
    for method, _, body in channel.consume(stream, arguments={"x-stream-offset": "first"}):
        channel.basic_ack(method.delivery_tag)
        if body == mark:
            break
        found = [*found, int(body)] if body.isdigit() else []
    channel.cancel()
    return found


def comparable(table: Table) -> Table:
    """Return the definitions sorted; of virtual hosts RabbitMQ 3.10 exports the names only."""
    plain = {section: sorted(entries, key=canonical) for section, entries in table.items() if isinstance(entries, list)}
    plain["vhosts"] = sorted(({"name": vhost["name"]} for vhost in table["vhosts"]), key=canonical)
    return json.loads(json.dumps(plain))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    with Rabbit() as process:
        fill(process)
        yield process


def test_what_rabbitmq_exports_boots_leveret_and_what_leveret_exports_boots_rabbitmq(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    told = rabbit.exported()
    path = tmp_path / "file.json"
    path.write_text(json.dumps(told))
    with LeveretProcess(tmp_path / "data", arguments=["--definitions", str(path)]) as leveret:
        with ControlClient(str(leveret.data_dir)) as control:
            again = control.call("export_definitions")
        assert comparable(again) == comparable(told)
        check_logins(leveret)
        for vhost in ("/", UNICODE):
            found = deliveries(leveret, vhost)
            assert found == deliveries(rabbit, vhost)
            assert sum(map(len, found.values())) > len(PUBLISHES)
        leveret.kill()
        leveret.start()
        with ControlClient(str(leveret.data_dir)) as control:
            assert comparable(control.call("export_definitions")) == comparable(again)
    with Rabbit() as other:
        other.request("POST", "definitions", again)
        assert comparable(other.exported()) == comparable(told)
        check_logins(other)
        for vhost in ("/", UNICODE):
            assert deliveries(other, vhost) == deliveries(rabbit, vhost)


def test_the_definitions_of_one_virtual_host(rabbit: Rabbit, tmp_path: Path) -> None:
    told = rabbit.request("GET", "definitions/%2F")
    with LeveretProcess(tmp_path) as leveret, ControlClient(str(leveret.data_dir)) as control:
        control.call("import_definitions", vhost="/", definitions=told)
        again = control.call("export_definitions", vhost="/")
    for section in ("queues", "exchanges", "bindings", "policies", "parameters"):
        assert sorted(again[section], key=canonical) == sorted(told[section], key=canonical)
