"""The complete upgrade of an endpoint, from its own timeouts to native delays."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from leveret.delay import NSERVICEBUS
from leveret.delay.instant import from_header, now
from leveret.endpoint import Context, Endpoint, message_type
from leveret.endpoint.timeouts import TimeoutQueues, TimeoutsUnavailable, drain
from leveret.endpoint.timeouts.manager import open_store
from leveret.endpoint.timeouts.removal import remove

from .older import EXPIRE, census_when, managing, older, stored


@message_type("Sales.Remind")
@dataclass
class Remind:
    text: str


class Upgraded:
    """The endpoint after its upgrade: it records what it handles, and whether that was early."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.endpoint = Endpoint(name, url, folder=folder, error_queue=f"{name}.error")
        self.seen: asyncio.Queue[tuple[str, Context]] = asyncio.Queue()
        self.endpoint.handler(Remind)(self._handle)

    async def _handle(self, remind: Remind, context: Context) -> None:
        await self.seen.put((remind.text, context))

    async def next(self) -> str:
        text, context = await asyncio.wait_for(self.seen.get(), 30)
        if EXPIRE in context.headers:
            assert now() >= from_header(context.headers[EXPIRE]), f"{text} is early"
        return text


def reminder(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


TYPE = {"NServiceBus.EnclosedMessageTypes": "Sales.Remind", "NServiceBus.ContentType": "application/json"}


async def test_an_endpoint_is_upgraded_drained_and_freed_of_its_timeout_manager(url: str, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}"
    async with older(url) as (connection, before):
        name = before.destination
        before.name, database = name, f"{database}/{name}.timeouts.sqlite"
        await TimeoutQueues(name, error_queue=f"{name}.error").declare(connection)
        await before.consumer.cancel()
        # before: messages that it defers to itself are stored
        async with managing(connection, before, database):
            await before.defer(reminder("stored before the upgrade"), timedelta(seconds=2), headers={**TYPE})
            await before.defer(reminder("of next year"), timedelta(days=365), headers={**TYPE})
            await stored(before, database, 2)
        # after: the timeout manager runs by default, beside native delays
        after = Upgraded(name, url, tmp_path)
        async with after.endpoint:
            await after.endpoint.send(name, Remind("native"), delay=timedelta(seconds=1))
            assert (await census_when(before, database, lambda _: True)).pending == 2, "the new one is in no database"
            await before.defer(reminder("of an older endpoint"), timedelta(milliseconds=100), headers={**TYPE})
            expected = {"native", "stored before the upgrade", "of an older endpoint"}
            assert {await after.next() for _ in range(3)} == expected
            queues, timeouts = TimeoutQueues(name), open_store(name, database)
            assert len(await remove(connection, timeouts, queues)) == 3, "one waits, and two consumers are there"
        # the end: drained into the levels, and nothing is left
        assert (await drain(connection, timeouts, queues, NSERVICEBUS)).moved == 1
        assert await remove(connection, timeouts, queues) == []
        timeouts.close()
        assert not os.listdir(tmp_path)
        freed = Upgraded(name, url, tmp_path)
        freed.endpoint.disable_timeout_manager()
        async with freed.endpoint:
            await freed.endpoint.send(name, Remind("without a timeout manager"), delay=timedelta(seconds=1))
            assert await freed.next() == "without a timeout manager"
            assert set((await queues.info(connection)).values()) == {None}
        assert not os.listdir(tmp_path)


async def test_an_endpoint_without_sqlalchemy_says_both_ways_out(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("store", "database"):
        monkeypatch.delitem(sys.modules, f"leveret.endpoint.timeouts.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    async with older(url) as (_, before):
        await before.consumer.cancel()
        upgraded = Upgraded(before.destination, url, tmp_path)
        with pytest.raises(TimeoutsUnavailable, match=r"leveret\[endpoint\].*disable_timeout_manager\(\)"):
            await upgraded.endpoint.start()
        upgraded.endpoint.disable_timeout_manager()
        async with upgraded.endpoint:
            await upgraded.endpoint.send(before.destination, Remind("now"))
            assert await upgraded.next() == "now"
