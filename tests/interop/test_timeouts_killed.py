"""kill -9 of a timeout manager, and of a drain, at every step: no message is lost or early."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from leveret.delay import NSERVICEBUS
from leveret.endpoint.timeouts import TimeoutQueues, drain
from leveret.endpoint.timeouts.manager import open_store

from .dying_manager import STEPS
from .older import Older, managing, older, stored

SENT = [str(number).encode() for number in range(20)]
TWICE = {"stored", "sent", "drained"}
"""Steps after which messages under way may be doubled, as "at least once" allows; after others they never are."""


async def killed(step: str, endpoint: Older, database: str, url: str) -> None:
    """Run a process until that step."""
    program = Path(__file__).with_name("dying_manager.py")
    process = await asyncio.create_subprocess_exec(sys.executable, program, step, endpoint.name, database, url)
    assert await asyncio.wait_for(process.wait(), 60) == -9, f"it was to be killed when {step}"


async def all_received(endpoint: Older) -> Counter[bytes]:
    """Return how often each message arrived; the last one is a marker."""
    got: Counter[bytes] = Counter()
    while not got.keys() >= set(SENT):
        got[(await endpoint.received()).body] += 1
    return got


@pytest.mark.parametrize("step", [step for step in STEPS if not step.startswith("drained")])
async def test_a_manager_killed_at_any_step_loses_nothing(url: str, database: str, step: str) -> None:
    async with older(url) as (connection, endpoint):
        for number, body in enumerate(SENT):
            await endpoint.defer(body, timedelta(milliseconds=10 * number))
        await killed(step, endpoint, database, url)
        async with managing(connection, endpoint, database):
            got = await all_received(endpoint)
            await stored(endpoint, database, 0)
            await endpoint.defer(b"last", timedelta(0))
            while (body := (await endpoint.received()).body) != b"last":
                got[body] += 1
        assert got.keys() == set(SENT)
        assert step in TWICE or got.total() == len(SENT), f"{got.total() - len(SENT)} came twice"


@pytest.mark.parametrize("step", [step for step in STEPS if step.startswith("drained")])
async def test_a_drain_that_was_killed_can_be_started_again(url: str, database: str, step: str) -> None:
    async with older(url) as (connection, endpoint):
        for body in SENT:
            await endpoint.defer(body, timedelta(seconds=1))
        await killed(step, endpoint, database, url)
        timeouts = open_store(endpoint.name, database)
        await drain(connection, timeouts, TimeoutQueues(endpoint.name), NSERVICEBUS)
        assert timeouts.census(0).pending == 0
        got = await all_received(endpoint)
        assert got.keys() == set(SENT)
        assert step in TWICE or got.total() == len(SENT)
        timeouts.close()
