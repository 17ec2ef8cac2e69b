"""The programs of README.md, on a broker of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from leveret.client import BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess
from tests.docs.run_by import programs

README = Path(__file__).parents[2] / "README.md"


def start(name: str, broker: LeveretProcess, directory: Path) -> "subprocess.Popen[bytes]":
    """Run the program that contains `name` against the broker."""
    [program] = [text for text in programs(README) if name in text]
    file = directory / "program.py"
    file.write_text(re.sub(r"amqp://[^\"]*", url(broker), program))
    return subprocess.Popen([sys.executable, str(file)], env=os.environ)


def url(broker: LeveretProcess) -> str:
    return f"amqp://guest:guest@localhost:{broker.port}/%2F"


def test_the_first_program_publishes_what_survives(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path / "data") as broker:
        assert start("asyncio.run", broker, tmp_path).wait() == 0
        broker.kill()
        broker.start()
        channel = BlockingConnection(url(broker), reconnect=False).channel()
        channel.consume("tasks", no_ack=True)
        delivery = channel.next_delivery()
        assert delivery is not None
        assert delivery.body == b"paint the fence"


def test_the_second_program_gets_an_answer(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path / "data") as broker, BlockingConnection(url(broker), reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue("sums")
        channel.consume("sums", no_ack=True)
        program = start(".rpc()", broker, tmp_path)
        request = channel.next_delivery()
        assert request is not None
        assert request.body == b"2 + 2"
        answered = Properties(correlation_id=request.properties.correlation_id)
        channel.publish(b"4", routing_key=request.properties.reply_to or "", properties=answered)
        connection.flush()
        assert program.wait() == 0
