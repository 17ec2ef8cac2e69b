"""Super streams: rabbitmq-streams and `leveret ctl` declare the same, and one client finds the same on both."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from os import environ
from pathlib import Path
from zlib import crc32

import pika
import pytest
from click.testing import CliRunner

from leveret.cli.ctl.group import command
from leveret.testing.processes import LeveretProcess, RabbitMQProcess

from ..shared import Facts, shared

pytestmark = pytest.mark.needs("rabbitmq")


class Both:
    """RabbitMQ and leveret, and their command lines."""

    def __init__(self, rabbitmq: Facts, leveret: LeveretProcess) -> None:
        self.rabbitmq = rabbitmq
        self.leveret = leveret

    def theirs(self, program: str, *words: str) -> tuple[int, list[str]]:
        path = Path(RabbitMQProcess.program() or "").with_name(program)
        environment = environ | self.rabbitmq["environment"]
        done = subprocess.run([path, *words], capture_output=True, text=True, check=False, env=environment)
        return done.returncode, plain(done.stdout)

    def ours(self, *words: str) -> tuple[int, list[str]]:
        done = CliRunner().invoke(command, list(words), env={"LEVERET_DATA_DIR": str(self.leveret.data_dir)})
        return done.exit_code, plain(done.stdout)


def plain(output: str) -> list[str]:
    """Return lines without banners, sorted; the arguments of a queue are sorted, too."""
    lines = [line for line in output.splitlines() if not line.endswith("...")]
    return sorted("".join([line.partition("[")[0], *sorted(re.findall(r"{[^}]*}", line))]) for line in lines)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The run's RabbitMQ, whose virtual host "/" only these tests use, and a leveret."""
    with LeveretProcess(tmp_path_factory.mktemp("data")) as leveret:
        yield Both(shared("rabbitmq"), leveret)


SIZES = "--max-length-bytes 1gb --max-age P1DT2H --stream-max-segment-size-bytes 500kb"
SESSION = (
    ("rabbitmq-streams", f"add_super_stream keys --routing-keys eu,us,ap {SIZES}"),
    ("rabbitmqctl", "list_queues --silent name durable arguments"),
    ("rabbitmqctl", "list_bindings --silent"),
    ("rabbitmq-streams", "add_super_stream keys --partitions 2"),
    ("rabbitmq-streams", "delete_super_stream keys"),
)


def test_the_same_layout_and_what_is_refused(both: Both) -> None:
    for program, line in SESSION:
        assert both.ours(*line.split()) == both.theirs(program, *line.split()), line


def test_one_client_on_both(both: Both) -> None:
    """As in docs/guides/streams.md: publishers choose a key, one consumer for each partition; both know the layout."""
    found = [partitions(url) for url in (both.rabbitmq["url"], both.leveret.url)]
    assert found[0] == found[1]
    assert sum(map(len, found[0])) == 30
    assert all(offsets == list(range(len(offsets))) for offsets in ([at for at, _ in each] for each in found[0]))


def partitions(url: str) -> list[list[tuple[int, bytes]]]:
    """Return (offset, body) of 30 messages in each partition."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "direct", durable=True, arguments={"x-super-stream": True})
        counts = [0, 0, 0]
        for order in range(3):
            channel.queue_declare(f"orders-{order}", durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(f"orders-{order}", "orders", str(order), {"x-stream-partition-order": order})
        channel.confirm_delivery()
        for number in range(30):
            partition = crc32(b"customer %d" % (number % 7)) % 3
            counts[partition] += 1
            channel.basic_publish("orders", str(partition), b"%d" % number, mandatory=True)
        channel.basic_qos(prefetch_count=100)
        found: list[list[tuple[int, bytes]]] = [[], [], []]
        for order in range(3):
            arguments = {"x-stream-offset": "first", "x-leveret-consumer": "g", "x-single-active-consumer": True}
            messages = channel.consume(f"orders-{order}", arguments=arguments)
            for method, properties, body in messages:
                found[order].append((int(properties.headers["x-stream-offset"]), body))
                channel.basic_ack(method.delivery_tag)
                if len(found[order]) == counts[order]:
                    break
            channel.cancel()
        return found
