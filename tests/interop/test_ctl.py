"""The same commands to rabbitmqctl of RabbitMQ 3.10.8 and to `leveret ctl`: output and exit codes, line by line.

Both brokers have the same queues, bindings and consumers. RabbitMQ's lists have no order: lines behind the first one
are sorted. A call of rabbitmqctl takes a second and more, so outputs that depend only on earlier commands were
recorded: rabbitmqctl-3.10.8.jsonl has its output on a new node.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest
from click.testing import CliRunner

from leveret.cli.ctl.group import command, diagnostics
from leveret.cli.ctl.tables import CTL, DIAGNOSTICS
from leveret.testing.processes import LeveretProcess, RabbitMQProcess

from ..waiting import until

live = pytest.mark.needs("rabbitmq")
patient = pytest.mark.timeout(900)
TRIED = 12
TRANSCRIPT = Path(__file__).with_name("rabbitmqctl-3.10.8.jsonl")

PID = re.compile(r"<[^<> ]+@[^<> ]+\.\d+\.\d+\.\d+>")
NODE = re.compile(r"[a-z-]+[0-9]*@[A-Za-z0-9.-]+")
PORT = re.compile(r"127\.0\.0\.1(:|\t)\d+")

# the commands, in this order; the text behind "<" is standard input
SESSION = """
add_user bob <secret
add_user carol <
change_password bob <
authenticate_user bob <secret
list_users --formatter csv
list_user_permissions bob
restart_vhost
list_queues
-q list_queues name messages consumers durable auto_delete exclusive state policy type
list_queues --formatter csv name messages durable arguments
list_queues --no-table-headers -q --vhost=/ name arguments messages_ready messages_unacknowledged
list_queues -t 5 name owner_pid exclusive_consumer_tag
list_exchanges name type durable auto_delete internal arguments policy
list_bindings
list_bindings source_name routing_key --formatter csv
list_connections
list_connections pid name user vhost state channels protocol frame_max channel_max auth_mechanism ssl
list_channels
list_channels name number user vhost transactional confirm consumer_count messages_unacknowledged prefetch_count
list_consumers queue_name consumer_tag ack_required prefetch_count active arguments activity_status
purge_queue q1
purge_queue nosuch
purge_queue stream
delete_queue nosuch
delete_queue q2 --if-empty --if-unused
delete_queue q2
trace_on
set_disk_free_limit 60MB
set_disk_free_limit nonsense
set_disk_free_limit mem_relative 0.001
set_vm_memory_high_watermark 1.5
set_vm_memory_high_watermark absolute 2GB
set_log_level nonsense
set_cluster_name another
ping
await_startup
await_online_nodes 1
suspend_listeners
resume_listeners
hipe_compile /nowhere
rotate_logs
close_connection nonsense reason
close_all_connections --limit 1 bye
close_all_user_connections nobody bye
"""
DIAGNOSED = """
ping
-q check_running
check_local_alarms
check_alarms
check_port_listener 5
check_protocol_listener amqp
check_virtual_hosts
check_certificate_expiration --within 3 --unit weeks
check_if_node_is_quorum_critical
is_running
discover_peers
"""


def ours(program: str, words: list[str], given: str, broker: LeveretProcess) -> tuple[int, str]:
    """Return exit code and output of leveret's program."""
    group = command if program == "rabbitmqctl" else diagnostics
    environment = {"LEVERET_DATA_DIR": str(broker.data_dir)}
    done = CliRunner().invoke(group, words, input=given, env=environment, prog_name=program)
    assert "Traceback" not in done.output
    return done.exit_code, done.stdout


class Both:
    """RabbitMQ and leveret, and their command lines."""

    def __init__(self, rabbitmq: RabbitMQProcess, leveret: LeveretProcess) -> None:
        self.rabbitmq = rabbitmq
        self.leveret = leveret

    def theirs(self, program: str, line: str) -> tuple[int, str]:
        """Return exit code and output of RabbitMQ's program."""
        words, _, given = line.partition("<")
        path = Path(RabbitMQProcess.program() or "").with_name(program)
        done = subprocess.run(
            [path, *words.split()], input=given, capture_output=True, text=True, check=False,
            env=os.environ | self.rabbitmq.environment(),
        )  # fmt: skip
        return done.returncode, done.stdout


def fill(url: str) -> pika.BlockingConnection:
    """Declare everything that is listed; the connection must stay open."""
    connection = pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=0"))
    channel = connection.channel()
    channel.queue_declare("q1", durable=True)
    arguments = {"x-max-length": 10, "x-dead-letter-exchange": "dlx", "x-overflow": "reject-publish"}
    channel.queue_declare("q2", arguments=arguments)
    channel.queue_declare("q3", auto_delete=True)
    channel.queue_declare("q4", exclusive=True)
    channel.queue_declare("ü", durable=True)
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
    channel.exchange_declare("x1", "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    channel.exchange_declare("x2", "headers", auto_delete=True, internal=True)
    channel.queue_bind("q1", "x1", "a.*.#")
    channel.queue_bind("q2", "amq.headers", "", {"x-match": "all", "k": 1, "t": {"n": "text"}})
    channel.exchange_bind("x2", "x1", "k")
    channel.confirm_delivery()
    for queue in ("q1", "q1", "q1", "q2"):
        channel.basic_publish("", queue, b"hello")
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=2)
    consuming.basic_consume("q3", lambda *_: None, consumer_tag="tag1", arguments={"x-priority": 5})
    consuming.basic_consume("q1", lambda *_: None, consumer_tag="tag2")
    consuming.queue_declare("q1", passive=True)
    return connection


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    leveret = LeveretProcess(tmp_path_factory.mktemp("data"))
    with RabbitMQProcess(plugins=["rabbitmq_federation"]) as rabbitmq, leveret:
        yield Both(rabbitmq, leveret)


def plain(output: tuple[int, str]) -> tuple[int, list[str]]:
    """Return the output without node names, process ids and ports, which differ."""
    code, text = output
    lines = PORT.sub("127.0.0.1:PORT", NODE.sub("NODE", PID.sub("PID", text))).splitlines()
    first = 1 if lines and lines[0].endswith("...") else 0
    return code, [*lines[:first], *sorted(lines[first:])]


def differences(both: Both, program: str, session: str) -> list[str]:
    found = []
    for line in session.strip().splitlines():
        words, _, given = line.partition("<")
        theirs, own = plain(both.theirs(program, line)), plain(ours(program, words.split(), given, both.leveret))
        if theirs != own:
            found.append(f"{line}\n  rabbitmq: {theirs}\n  leveret:  {own}")
    return found


def test_the_transcript(tmp_path: Path) -> None:
    found = []
    with LeveretProcess(tmp_path) as broker:
        for line in TRANSCRIPT.read_text().splitlines():
            said = json.loads(line)
            theirs = plain((said["exit"], said["output"]))
            own = plain(ours("rabbitmqctl", shlex.split(said["command"]), "", broker))
            if theirs != own:
                found.append(f"{said['command']}\n  rabbitmq: {theirs}\n  leveret:  {own}")
    assert not found, "\n".join(found)


@live
@patient
def test_the_transcript_is_fresh(both: Both) -> None:
    """Only its first commands, as rabbitmqctl is slow. Alice must be deleted again: other tests list the users, too."""
    for line in TRANSCRIPT.read_text().splitlines()[:TRIED]:
        said = json.loads(line)
        now = plain(both.theirs("rabbitmqctl", said["command"]))
        assert now == plain((said["exit"], said["output"])), f"{said['command']}: RabbitMQ now says {now}"
    assert both.theirs("rabbitmqctl", "delete_user alice")[0] == 0


def listen(connection: pika.BlockingConnection) -> None:
    """Consume until the connection is closed."""
    while True:
        connection.process_data_events(time_limit=10)


@live
@patient
def test_scripts_notice_nothing(both: Both) -> None:
    kept = [fill(both.rabbitmq.url), fill(both.leveret.url)]
    found = differences(both, "rabbitmqctl", SESSION)
    assert not found, "\n".join(found)
    for connection in kept:  # close_all_connections has closed it
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="bye"):
            listen(connection)


@live
@patient
def test_health_checks_notice_nothing(both: Both) -> None:
    found = differences(both, "rabbitmq-diagnostics", DIAGNOSED)
    assert not found, "\n".join(found)


@live
@patient
@pytest.mark.parametrize(("program", "specs"), [("rabbitmqctl", CTL), ("rabbitmq-diagnostics", DIAGNOSTICS)])
def test_no_command_is_forgotten(both: Both, program: str, specs: dict[str, object]) -> None:
    """Each command of RabbitMQ is implemented, or refused with a reason; docs/reference/ctl.md lists them."""
    names = set(re.findall(r"^   ([a-z_]+) {2}", both.theirs(program, "help")[1], re.MULTILINE))
    assert len(names) > 50
    assert names - set(specs) == set()


LINKED = """
set_parameter federation-upstream gone {"uri":"amqp://user:sesame@127.0.0.1:1","reconnect-delay":1}
set_policy --apply-to exchanges linked ^amq.topic$ {"federation-upstream":"gone"}
restart_federation_link nonsense
restart_federation_link
restart_federation_link a b
"""
UNLINKED = """
clear_policy linked
clear_parameter federation-upstream gone
federation_status --formatter csv
"""


@live
@patient
def test_federation_links_are_listed_alike(both: Both) -> None:
    found = differences(both, "rabbitmqctl", LINKED)
    assert not found, "\n".join(found)

    def links(*options: str) -> list[dict[str, str]]:
        words = ["federation_status", *options, "--formatter", "csv"]
        said = [both.theirs("rabbitmqctl", " ".join(words)), ours("rabbitmqctl", words, "", both.leveret)]
        assert [code for code, _ in said] == [0, 0]
        rows = [list(csv.DictReader(io.StringIO(text))) for _, text in said]
        return [row for some in rows for row in some if row["upstream"]]

    until(lambda: [link["status"] for link in links("--only-down")] == ["error", "error"])
    theirs, mine = links()
    assert list(mine)[: len(theirs)] == list(theirs)
    varying = {"error", "id", "last_changed"}
    assert {name: mine[name] for name in theirs.keys() - varying - {"upstream_queue"}} == {
        name: theirs[name] for name in theirs.keys() - varying - {"upstream_queue"}
    }
    assert mine["uri"] == "amqp://127.0.0.1:1"
    for shape in (r"[0-9a-f]{8}", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"):
        assert all(any(re.fullmatch(shape, value) for value in row.values()) for row in (theirs, mine))
    restart = "restart_federation_link"
    said = [
        (theirs["id"], both.theirs("rabbitmqctl", f"{restart} {theirs['id']}")),
        (mine["id"], ours("rabbitmqctl", [restart, mine["id"]], "", both.leveret)),
    ]
    for id, done in said:
        assert plain(done) == (0, [f"Restarting federation link {id} on node NODE"])
    found = differences(both, "rabbitmqctl", UNLINKED)
    assert not found, "\n".join(found)
