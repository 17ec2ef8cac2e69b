"""Commands that pages show one by one, run on a broker with matching contents."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from leveret.client import BlockingConnection, Properties, connect
from leveret.delay import NSERVICEBUS, Sender
from leveret.testing.processes import LeveretProcess
from tests.docs.commands import shown

# pages whose commands are run here -> commands that are not: live views, servers, and those on a reader's own things
PAGES: dict[str, set[str]] = {
    "README.md": {"serve --data-dir ./data"},
    "docs/guides/backup.md": {"serve --data-dir /var/lib/leveret"},
    "docs/reference/ctl.md": {
        "ctl [--data-dir DIR] COMMAND ...", "ctl restart_federation_link e3d90771",
        "ctl pause_federation_link e3d90771", "ctl resume_federation_link e3d90771",
    },
    "docs/reference/definitions.md": {"serve --definitions FILE"},
    "docs/reference/doctor.md": {
        "doctor --url http://user:password@rabbit.example:15672",
        "doctor --url $API --fail-on error --ignore default-guest",
    },
    "docs/guides/explain-and-browse.md": set(),
    "docs/reference/policies.md": set(),
    "docs/guides/streams.md": set(),
    "docs/reference/top.md": {"top", "top --data-dir ./data", "top --url http://guest:guest@localhost:15672"},
}  # fmt: skip


class Scene:
    """A broker, and a directory where commands may write."""

    def __init__(self, broker: LeveretProcess, directory: Path) -> None:
        api = broker.admin_url.replace("://", "://guest:guest@")
        self._places = {
            "./data": str(broker.data_dir), "DIRECTORY": str(directory / "backup"), "FILE": str(directory / "file"),
            "http://guest:guest@localhost:15672": api, "http://127.0.0.1:15672/api/overview": f"{api}/api/overview",
        }  # fmt: skip
        self._directory = directory
        own = {"LEVERET_DATA_DIR": str(broker.data_dir), "LEVERET_URL": broker.url, "LEVERET_API_URL": api}
        self._environment = os.environ | own

    def run(self, words: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        """Run a command as shown, with the placeholders filled in."""
        command = [sys.executable, "-m", "leveret.cli.main", *(self._places.get(word, word) for word in words)]
        return subprocess.run(
            command, cwd=self._directory, env=self._environment, capture_output=True, text=True, check=False
        )


async def delay(url: str) -> None:
    async with await connect(url, reconnect=False) as connection, Sender(connection, NSERVICEBUS) as sender:
        later = timedelta(days=2)
        await sender.send(b"delayed", "orders", later, Properties(message_id="4711"))
        await sender.send(b"delayed", "bills", later, Properties(headers={"tenant": 7}))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("examples")
    with LeveretProcess(directory / "data", admin=True) as broker:
        with BlockingConnection(broker.url, reconnect=False) as connection:
            channel = connection.channel()
            for name in ("orders", "bills"):
                channel.declare_queue(name)
            for name in ("events", "flights"):
                channel.declare_queue(name, arguments={"x-queue-type": "stream"})
            channel.declare_exchange("orders", kind="topic")
            channel.bind_queue("bills", "orders", "order.*.paid")
            channel.confirm_select()
            for number in range(2_000):
                channel.publish(b"%d" % number, routing_key="flights")
            channel.publish(b"4711", routing_key="orders")
            channel.publish(b"it happened", routing_key="events")
            channel.wait_for_confirms()
        asyncio.run(delay(broker.url))
        made = Scene(broker, directory)
        for user in ("shop", "alice-2"):
            assert made.run(("ctl", "add_user", user, "secret")).returncode == 0
        yield made


def examples(page: str) -> list[tuple[str, ...]]:
    """Return the commands of a page in order, without `leveret`."""
    found = [command.words[1:] for command in shown() if command.page == page and command.words[0] != "make"]
    return [words for words in found if " ".join(words) not in PAGES[page]]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(scene: Scene, page: str) -> None:
    commands = examples(page)
    assert commands
    for words in commands:
        done = scene.run(words)
        found_something = words[0] == "doctor" and done.returncode == 1
        assert done.returncode == 0 or found_something, f"{words}: {done.stdout}{done.stderr}"


def test_what_is_left_out_stands_there() -> None:
    there = {(command.page, " ".join(command.words[1:])) for command in shown()}
    assert not {(page, text) for page, texts in PAGES.items() for text in texts} - there
