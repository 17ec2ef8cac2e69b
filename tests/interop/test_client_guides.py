"""The guides of the client: each program prints what its page shows, those of other clients, too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.testing.processes import LeveretProcess

from ..shared import virtual_host

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PAGES = ("client.md", "coming-from-aio-pika.md", "coming-from-pika.md")
URL = "amqp://guest:guest@localhost:5672/%2F"


def programs(page: str) -> list[tuple[str, str, str]]:
    """Return (name, program, output) of each program: the next output that follows it on the page."""
    found = []
    waiting: list[tuple[str, str]] = []
    blocks = re.findall(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", (GUIDES / page).read_text(), re.M | re.S)
    for language, name, text in blocks:
        if language == "python" and name:
            waiting.append((name, text))
        elif language == "text":
            found += [(*program, text) for program in waiting]
            waiting = []
    assert not waiting, f"{page}: programs without an output"
    return found


CASES = [pytest.param(text, output, id=f"{page}-{name}") for page in PAGES for name, text, output in programs(page)]


@pytest.fixture(scope="module", params=["leveret", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a broker without any queues."""
    if request.param == "leveret":
        with LeveretProcess() as process:
            yield process.url
    else:
        with virtual_host(f"guides-{uuid.uuid4().hex[:8]}") as found:
            yield found


@pytest.mark.parametrize(("text", "output"), CASES)
def test_a_program_prints_what_its_page_shows(url: str, text: str, output: str, tmp_path: Path) -> None:
    assert URL in text
    file = tmp_path / "program.py"
    file.write_text(text.replace(URL, url))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=os.environ, check=False)
    assert (done.stdout, done.returncode) == (output, 0), done.stderr


@pytest.mark.parametrize("page", PAGES[1:])
def test_both_sides_of_a_section_are_there(page: str) -> None:
    names = [name for name, _, _ in programs(page)]
    other = page.removeprefix("coming-from-").removesuffix(".md").replace("-", "_")
    assert len(names) >= 4
    assert [name.replace(f"_{other}.py", "_leveret.py") for name in names[::2]] == names[1::2]
