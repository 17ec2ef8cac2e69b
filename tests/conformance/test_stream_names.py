"""Named stream consumers and publishers, with pika: what survives a kill, takeover, and deduplication."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pika
import pytest
from click.testing import CliRunner

from leveret.cli.ctl.group import command
from leveret.testing.processes import LeveretProcess

STREAM = {"x-queue-type": "stream"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


class Reader:
    """A connection with one consumer of a stream."""

    def __init__(self, url: str, stream: str, prefetch: int = 1000, **arguments: object) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.tags: list[int] = []
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        self._found: list[bytes] = []
        self.channel.basic_consume(stream, self._take, arguments=given)

    def _take(self, channel: object, method: pika.spec.Basic.Deliver, properties: object, body: bytes) -> None:
        self.tags.append(method.delivery_tag)
        self._found.append(body)

    def take(self, count: int) -> list[bytes]:
        """Wait for the next `count` bodies."""
        while len(self._found) < count:
            self.connection.process_data_events(time_limit=60)
        found, self._found = self._found[:count], self._found[count:]
        return found

    def ack(self, count: int) -> None:
        """Acknowledge the first `count` deliveries with multiple; return when the broker has handled it."""
        self.channel.basic_ack(self.tags[count - 1], multiple=True)
        self.sync()

    def sync(self) -> None:
        """Return when the broker has handled everything that was sent before."""
        self.channel.basic_qos(prefetch_count=1000)


def publish(url: str, stream: str, *bodies: bytes, **headers: object) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(stream, durable=True, arguments=STREAM)
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers={name.replace("_", "-"): value for name, value in headers.items()})
        for body in bodies:
            channel.basic_publish("", stream, body, properties)


def ctl(house: LeveretProcess, *words: str) -> object:
    done = CliRunner().invoke(command, ["--json", *words], env={"LEVERET_DATA_DIR": str(house.data_dir)})
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_what_was_acknowledged_stands_after_a_kill(house: LeveretProcess) -> None:
    publish(house.url, "kill", *numbers(0, 10), x_leveret_publisher="p")
    reader = Reader(house.url, "kill", x_leveret_consumer="c", x_stream_offset="first")
    assert reader.take(10) == numbers(0, 10)
    reader.ack(4)
    publish(house.url, "other", b"what is confirmed now is on disk with all that was before it")
    for sequence in (1, 2, 2, 3):
        publish(house.url, "kill", b"s%d" % sequence, x_leveret_publisher="p", x_leveret_sequence=sequence)
    house.kill()
    house.start()
    for sequence in (2, 3, 4):
        publish(house.url, "kill", b"s%d" % sequence, x_leveret_publisher="p", x_leveret_sequence=sequence)
    again = Reader(house.url, "kill", x_leveret_consumer="c")
    assert again.take(10) == [*numbers(4, 10), b"s1", b"s2", b"s3", b"s4"]
    again.sync()
    assert ctl(house, "list_stream_tracking", "kill") == [
        {"type": "offset", "name": "c", "tracking_value": 4, "lag": 10, "is_consuming": True},
        {"type": "writer", "name": "p", "tracking_value": 4, "lag": None, "is_consuming": None},
    ]
    again.connection.close()


def test_the_next_consumer_takes_over(house: LeveretProcess) -> None:
    publish(house.url, "single", *numbers(0, 6))
    single = {"x_leveret_consumer": "c", "x_single_active_consumer": True}
    first = Reader(house.url, "single", x_stream_offset="first", **single)
    second = Reader(house.url, "single", **single)
    assert first.take(6) == numbers(0, 6)
    listed = ctl(house, "list_consumers", "queue_name", "active", "activity_status")
    assert isinstance(listed, list)
    status = [(each["active"], each["activity_status"]) for each in listed if each["queue_name"] == "single"]
    assert status == [(True, "single_active"), (False, "waiting")]
    first.ack(2)
    first.connection.close()
    assert second.take(4) == numbers(2, 6)
    second.connection.close()


def test_filtered_from_files_and_memory(house: LeveretProcess) -> None:
    """3 MiB of other messages lie between, so most of them are in chunks that are not read."""
    url = house.url
    publish(url, "filter", b"a0", x_stream_filter_value="a")
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers={"x-stream-filter-value": "b"})
        for _ in range(30):
            channel.basic_publish("", "filter", bytes(100_000), properties)
    publish(url, "filter", b"none")
    publish(url, "filter", b"a1", x_stream_filter_value="a")
    reader = Reader(url, "filter", prefetch=1, x_stream_offset="first", x_stream_filter="a")
    assert reader.take(1) == [b"a0"]
    reader.ack(1)
    assert reader.take(1) == [b"a1"]
    with_others = Reader(url, "filter", x_stream_offset="first", x_stream_filter=["a"], x_stream_match_unfiltered=True)
    assert with_others.take(3) == [b"a0", b"none", b"a1"]
    for each in (reader, with_others):
        each.connection.close()


def test_a_super_stream_by_the_command_line(house: LeveretProcess) -> None:
    ctl(house, "add_super_stream", "invoices", "--partitions", "2", "--max-length-bytes", "1gb", "--max-age", "P7D")
    with pika.BlockingConnection(pika.URLParameters(house.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(10):
            channel.basic_publish("invoices", str(number % 2), b"%d" % number, mandatory=True)
        arguments = STREAM | {"x-max-length-bytes": 10**9, "x-max-age": "604800s"}
        channel.queue_declare("invoices-1", durable=True, arguments=arguments)
    reader = Reader(house.url, "invoices-1", x_stream_offset="first")
    assert reader.take(5) == [b"1", b"3", b"5", b"7", b"9"]
    reader.connection.close()
    ctl(house, "delete_super_stream", "invoices")
    environment = {"LEVERET_DATA_DIR": str(house.data_dir)}
    done = CliRunner().invoke(command, ["delete_super_stream", "invoices"], env=environment)
    assert done.exit_code == 70
    assert "stream_not_found" in done.output
