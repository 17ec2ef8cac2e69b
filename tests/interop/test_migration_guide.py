"""docs/guides/migration.md: its commands, unchanged, on a real RabbitMQ and a leveret, while messages flow."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.client import BlockingConnection, Properties, connect
from leveret.control.calls.blocking import ControlClient
from leveret.delay import NSERVICEBUS_V2, Sender
from leveret.testing.processes import LeveretProcess, RabbitMQProcess, free_port

from ..waiting import until

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "migration.md"
BLOCKS = [re.sub(r"(?m)^ {3}", "", text) for text in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.S)]
KEY = "order.new"

pytestmark = pytest.mark.timeout(120)
live = pytest.mark.needs("rabbitmq", "curl", "jq")


class Guide:
    """Runs the blocks of the guide; `old` and `new` are its two brokers."""

    def __init__(self, old: RabbitMQProcess, old_api: str, new: LeveretProcess, directory: Path) -> None:
        self.old, self.new = old, new
        self._directory = directory
        self._places = {
            "http://old:15672": old_api, "http://new:15672": new.admin_url,
            "old:5672": f"127.0.0.1:{old.port}", "new:5672": f"127.0.0.1:{new.port}",
        }  # fmt: skip
        command = directory / "leveret"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m leveret.cli.main "$@"\n')
        command.chmod(0o755)
        self.used: set[int] = set()

    def begin(self, mark: str) -> subprocess.Popen[str]:
        """Start the one block that contains these words."""
        [index] = [index for index, text in enumerate(BLOCKS) if mark in text]
        self.used.add(index)
        text = BLOCKS[index]
        for name, place in self._places.items():
            text = text.replace(name, place)
        environment = {
            **os.environ,
            "PATH": f"{self._directory}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            "LEVERET_DATA_DIR": str(self.new.data_dir),
        }
        return subprocess.Popen(
            ["bash", "-ec", text], cwd=self._directory, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, mark: str) -> str:
        """Run a block, which must succeed; return its output."""
        work = self.begin(mark)
        output, complaint = work.communicate(timeout=120)
        assert work.returncode == 0, output + complaint
        return output

    def links(self) -> list[dict[str, Any]]:
        with ControlClient(str(self.new.data_dir)) as control:
            found: list[dict[str, Any]] = control.call("federation_status")
            return found

    def api(self, path: str) -> Any:
        """Return JSON of RabbitMQ's HTTP API."""
        call = ["curl", "-sSf", "-u", "guest:guest", f"{self._places['http://old:15672']}/api/{path}"]
        return json.loads(subprocess.run(call, check=True, capture_output=True).stdout)


class Producer(threading.Thread):
    """Publishes numbers with confirms, without a pause; changes brokers on demand."""

    def __init__(self, url: str, exchange: str = "orders", key: str = KEY) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.url = url
        self._exchange, self._key = exchange, key
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            url = self.url
            with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
                channel.confirm_select()
                while url == self.url and not self._stopped.wait(0.002):
                    channel.publish(
                        b"%d" % self.sent, self._exchange, self._key, Properties(delivery_mode=2), mandatory=True
                    )
                    channel.wait_for_confirms()
                    self.sent += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def until_sent(self, more: int) -> None:
        goal = self.sent + more
        until(lambda: self.sent >= goal or not self.is_alive())
        assert self.is_alive(), "the producer failed"


class Consumer(threading.Thread):
    """Consumes from a queue until it is stopped; `handled` may be shared."""

    def __init__(self, url: str, queue: str, handled: list[int]) -> None:
        super().__init__(daemon=True)
        self._url, self._queue, self._handled = url, queue, handled
        self._stopped = threading.Event()
        self.start()

    def run(self) -> None:
        with BlockingConnection(self._url, reconnect=False) as connection, connection.channel() as channel:
            channel.qos(10)
            channel.consume(self._queue)
            while not self._stopped.is_set():
                delivery = channel.next_delivery(0.05)
                if delivery is not None:
                    self._handled.append(int(delivery.body))
                    channel.ack(delivery.delivery_tag)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@pytest.fixture
def guide(tmp_path: Path) -> Iterator[Guide]:
    port = free_port()
    settings = f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1"
    plugins = ["rabbitmq_management", "rabbitmq_federation", "rabbitmq_federation_management"]
    with RabbitMQProcess(plugins=plugins, settings=settings) as old, LeveretProcess(admin=True) as new:
        new.said("the HTTP API is on")
        yield Guide(old, f"http://127.0.0.1:{port}", new, tmp_path)


def declare(url: str, *queues: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_exchange("orders")
        for queue in queues:
            channel.declare_queue(queue)
            channel.bind_queue(queue, "orders", "order.#")


def count(url: str, queue: str) -> int:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        return channel.declare_queue(queue, passive=True).message_count


@live
async def test_there_and_back(guide: Guide) -> None:
    """A producer that never stops, a queue whose consumer moves, and another whose consumer stays."""
    old, new = guide.old.url, guide.new.url
    declare(old, "billing", "audit")
    handled: list[int] = []
    audited: list[int] = []
    worker, auditor = Consumer(old, "billing", handled), Consumer(old, "audit", audited)
    producer = Producer(old)
    producer.start()
    producer.until_sent(50)

    guide.run("first.json")
    assert "running" in guide.run("set_policy --apply-to exchanges migration") or guide.links()
    guide.run("-X PUT http://old:15672/api/parameters")
    until(lambda: [link["status"] for link in guide.links()] == ["running"])
    until(lambda: [link["status"] for link in guide.api("federation-links")] == ["running"])

    guide.run("> billing.json")
    until(lambda: [link["unbound"] for link in guide.links()] == [0])
    until(lambda: count(new, "billing") > 0)
    guide.run("-X DELETE http://old:15672/api/bindings")
    assert [each["source"] for each in guide.api("queues/%2F/billing/bindings")] == [""]  # the default exchange
    worker.stop()
    worker = Consumer(new, "billing", handled)
    producer.until_sent(50)
    until(lambda: "messages moved" in guide.run("--to amqp://guest:guest@new:5672/%2F\n"))
    assert count(old, "billing") == 0

    producer.url = new
    producer.until_sent(100)

    async with await connect(old, reconnect=False) as connection:
        channel = await connection.channel()
        await NSERVICEBUS_V2.declare(channel)
        await channel.declare_queue("later")
        async with Sender(connection, NSERVICEBUS_V2) as sender:
            await sender.send(b"later", "later", 3600)
    with BlockingConnection(new, reconnect=False) as there, there.channel() as blocking:
        blocking.declare_queue("later")
    assert "1 moved" in guide.run("leveret delay transfer")

    until(lambda: any("order.#" in str(each) for each in guide.api("exchanges/%2F/orders/bindings/source")))
    guide.run("-X POST http://old:15672/api/bindings")
    until(lambda: count(old, "billing") > 0)
    worker.stop()
    worker = Consumer(old, "billing", handled)
    guide.run("-X DELETE http://new:15672/api/bindings")
    assert count(new, "billing") == 0
    producer.url = old
    producer.until_sent(50)
    producer.stop()
    guide.run("> back.json")
    everything = set(range(producer.sent))
    until(lambda: everything <= set(handled) and everything <= set(audited))
    worker.stop()
    auditor.stop()
    twice = sum(times - 1 for times in Counter(handled).values())
    assert twice < producer.sent / 2, "only what was published while a queue was switched"
    assert Counter(audited) == Counter(everything), "nothing was switched here"

    guide.run("leveret ctl clear_policy")
    until(lambda: not guide.links() and not guide.api("federation-links"))
    assert len(guide.used) == len(BLOCKS) - 1, "all but the one of the next test"


@live
def test_in_order(guide: Guide) -> None:
    """A queue that producers address by its name: one at a time, no duplicates, no message overtakes another."""
    old, new = guide.old.url, guide.new.url
    declare(old, "billing")
    declare(new, "billing")
    producer = Producer(old, "", "billing")
    producer.start()
    producer.until_sent(20)
    handled: list[int] = []
    worker = Consumer(new, "billing", handled)
    work = guide.begin("--follow")
    producer.until_sent(200)
    producer.stop()
    until(lambda: len(handled) >= producer.sent)
    assert count(old, "billing") == 0
    os.killpg(work.pid, signal.SIGINT)
    output, complaint = work.communicate(timeout=60)
    assert "messages moved" in output, complaint
    worker.stop()
    assert handled == list(range(producer.sent))


def test_what_it_points_to_is_there() -> None:
    for name, anchor in re.findall(r"\]\(([\w./-]*)(#[\w-]+)?\)", GUIDE.read_text()):
        text = (GUIDE.parent / name).read_text() if name else GUIDE.read_text()
        headings = [heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.M)]
        assert not anchor or anchor[1:] in headings
