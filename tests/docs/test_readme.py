"""The programs of README.md, on a broker of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess
from tests.docs.run_by import programs

README = Path(__file__).parents[2] / "README.md"


def test_the_first_program_publishes_what_survives(tmp_path: Path) -> None:
    [program] = [text for text in programs(README) if "asyncio.run" in text]
    with LeveretProcess(tmp_path / "data") as broker:
        url = f"amqp://guest:guest@localhost:{broker.port}/%2F"
        (tmp_path / "program.py").write_text(re.sub(r"amqp://[^\"]*", url, program))
        subprocess.run([sys.executable, str(tmp_path / "program.py")], check=True, env=os.environ)
        broker.kill()
        broker.start()
        channel = BlockingConnection(url).channel()
        channel.consume("tasks", no_ack=True)
        delivery = channel.next_delivery()
        assert delivery is not None
        assert delivery.body == b"paint the fence"
