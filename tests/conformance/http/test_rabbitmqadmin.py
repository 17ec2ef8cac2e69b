"""rabbitmqadmin, RabbitMQ's own command line tool for the HTTP API, as a RabbitMQ node serves it, on both brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pika.exceptions
import pytest

from .api import Api
from .conftest import LIVE, serve, within
from .pair import Broker, Pair

# the tool comes from RabbitMQ
pytestmark = [pytest.mark.needs("rabbitmq"), pytest.mark.parametrize("against", [LIVE], indirect=True)]
Run = Callable[..., str]
# without a home directory the tool finds no configuration of the user
NO_HOME = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="session")
def tool(rabbitmq: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tool, as this RabbitMQ serves it."""
    path = tmp_path_factory.mktemp("tool") / "rabbitmqadmin"
    api = Api(rabbitmq.api)
    path.write_bytes(api.call("GET", "/cli/rabbitmqadmin").content)
    api.close()
    return path


@pytest.fixture
def run(tool: Path, rabbitmq: Broker, subject: Broker, vhost: str) -> Run:
    """Runs a command on both brokers, in the test's virtual host; returns its output, which must be the same."""

    def run(*arguments: str, status: int = 0, clean: Callable[[str], str] = str, stdin: str = "") -> str:
        seen = []
        for broker in (rabbitmq, subject):
            address = urlsplit(broker.api)
            where = ["--host", str(address.hostname), "--port", str(address.port)]
            command = [sys.executable, str(tool), *where, "--vhost", vhost, *arguments]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=NO_HOME)
            seen.append((done.returncode, clean(done.stdout), done.stderr.replace(str(address.port), "PORT")))
        assert seen[0] == seen[1], arguments
        assert seen[0][0] == status, seen[0]
        return seen[0][1]

    return run


FORMATS = ["table", "long", "kvp", "tsv", "pretty_json", "raw_json", "bash"]


def parsed(text: str) -> str:
    """Return JSON text with the keys of objects in order."""
    return json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize("form", FORMATS)
def test_formats(run: Run, form: str) -> None:
    clean = parsed if form.endswith("json") else str
    run("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length": 5}')
    run("--format", form, "list", "queues", "name", "durable", "arguments", clean=clean)
    run("--format", form, "list", "exchanges", "name", "type", "internal", clean=clean)
    run("--format", form, "list", "bindings", "source", "destination", "routing_key", clean=clean)
    run("--format", form, "--sort", "name", "--sort-reverse", "list", "exchanges", "name", clean=clean)


def test_life_of_a_message(run: Run) -> None:
    assert "NOT routed" in run("publish", "routing_key=q", "payload=lost", status=0)
    run("declare", "queue", "name=q")
    run("publish", "routing_key=q", "payload=hello")
    run("publish", "routing_key=q", stdin="from the standard input")
    properties = 'properties={"delivery_mode":2,"headers":{"a":1}}'
    run("publish", "exchange=amq.default", "routing_key=q", "payload=x", properties)
    run("publish", "exchange=none", "routing_key=q", "payload=x", status=1)
    assert "hello" in run("get", "queue=q", "count=5")
    run("--format", "long", "get", "queue=q", "count=2", "ackmode=ack_requeue_false")
    run("--format", "raw_json", "get", "queue=q", "encoding=base64", clean=parsed)
    run("purge", "queue", "name=q")
    run("get", "queue=q")
    run("get", "queue=none", status=1)


def test_declaring_and_deleting(run: Run, vhost: str) -> None:
    run("declare", "exchange", "name=e", "type=topic", "durable=true")
    run("declare", "exchange", "name=e", "type=direct", status=1)
    run("declare", "queue", "name=q", "queue_type=quorum", "durable=true")
    run("declare", "binding", "source=e", "destination=q", "routing_key=a.#")
    run("declare", "binding", "source=e", "destination=none", status=1)
    run("list", "bindings")
    run("declare", "policy", "name=p", "pattern=^q", 'definition={"max-length": 5}', "apply-to=queues", "priority=1")
    run("list", "policies")
    run("declare", "policy", "name=p", "pattern=(", 'definition={"max-length": 5}', status=1)
    run("declare", "operator_policy", "name=o", "pattern=^q", 'definition={"max-length": 5}', "apply-to=queues")
    run("list", "operator_policies")
    run("declare", "vhost_limit", f"vhost={vhost}", "name=max-queues", "value=50")
    run("declare", "parameter", "component=federation-upstream", "name=up", 'value={"uri": "amqp://"}')
    run("list", "parameters", clean=lambda text: "\n".join(line for line in text.split("\n") if vhost in line))
    run("declare", "user", f"name={vhost}-user", "password=secret", "tags=monitoring")
    run("declare", "permission", f"vhost={vhost}", f"user={vhost}-user", "configure=a", "write=b", "read=c")
    run("list", "permissions", clean=lambda text: "\n".join(line for line in text.split("\n") if vhost in line))
    run("--username", f"{vhost}-user", "--password", "secret", "list", "queues", "name")
    run("--username", f"{vhost}-user", "--password", "wrong", "list", "queues", "name", status=1)
    run("declare", "vhost", f"name={vhost}-two", "tracing=true")
    run("delete", "vhost", f"name={vhost}-two")
    run("delete", "permission", f"vhost={vhost}", f"user={vhost}-user")
    run("delete", "user", f"name={vhost}-user")
    run("delete", "parameter", "component=federation-upstream", "name=up")
    run("delete", "vhost_limit", f"vhost={vhost}", "name=max-queues")
    run("delete", "operator_policy", "name=o")
    run("delete", "policy", "name=p")
    run("delete", "binding", "source=e", "destination_type=queue", "destination=q", "properties_key=a.%23")
    run("list", "bindings")
    run("delete", "exchange", "name=e")
    run("delete", "queue", "name=q")
    run("delete", "queue", "name=q", status=1)
    run("list", "nonsense", status=1)
    run("declare", "queue", status=1)


def test_what_the_broker_shows_of_itself(run: Run, rabbitmq: Broker, subject: Broker) -> None:
    def columns(text: str) -> str:
        """Return the column heads of a table, because the values differ between brokers."""
        return re.sub(r"[-+]+", "", re.sub(r" +", " ", text.split("\n")[1])) if text else ""

    run("show", "overview", "object_totals.queues", "node", clean=columns)
    run("show", "overview", clean=columns)
    run("list", "nodes", "name", "type", "running", clean=columns)
    run("list", "users", "name", "tags", clean=columns)
    run("list", "vhosts", "name", "tracing", clean=columns)


def test_closing_a_connection(tool: Path, both: Pair, rabbitmq: Broker, subject: Broker, vhost: str) -> None:
    for broker, api in zip((rabbitmq, subject), both.apis, strict=True):
        connection = pika.BlockingConnection(pika.URLParameters(within(broker, vhost)))
        mine: list[str] = []
        while not mine:
            found = api.call("GET", f"/api/vhosts/{vhost}/connections").json
            mine = [each["name"] for each in found if each["name"]]
        address = urlsplit(broker.api)
        where = ["--host", str(address.hostname), "--port", str(address.port)]
        command = [sys.executable, str(tool), *where, "close", "connection", f"name={mine[0]}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=NO_HOME)
        assert done.stdout == "connection closed\n"
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            serve(connection)


def test_export_and_import(run: Run, both: Pair, vhost: str, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    for number in range(3):
        run("declare", "queue", f"name=q{number}", "durable=true")
    run("export", str(file))
    assert {each["name"] for each in json.loads(file.read_text())["queues"]} == {"q0", "q1", "q2"}
    for number in range(3):
        run("delete", "queue", f"name=q{number}")
    run("import", str(file))
    assert "q2" in run("list", "queues", "name")
    file.write_text("{")
    run("import", str(file), status=1)
