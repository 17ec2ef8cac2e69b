"""Fixtures that all tests share: one broker of ours for the whole run, on a free port with a directory of its own."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from leveret.testing.processes import LeveretProcess

# How long an example takes says something about the machine, and nothing about the code.
settings.register_profile("leveret", deadline=None)
settings.load_profile("leveret")

# A broker that a test starts has no HTTP API, unless the test asks for one: there is only one default port.
os.environ["LEVERET_ADMIN_PORT"] = "0"


@pytest.fixture(scope="session")
def leveret_process() -> Iterator[LeveretProcess]:
    """A running ``leveret serve``; at the end it must stop by SIGTERM with exit status 0."""
    with LeveretProcess() as process:
        yield process


@pytest.fixture(scope="session")
def broker(leveret_process: LeveretProcess) -> str:
    """The URL of the run's own leveret. Tests share it: they use names of their own."""
    return leveret_process.url
