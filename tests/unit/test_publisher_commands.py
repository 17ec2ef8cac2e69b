"""What operators see of publisher references, and what they forget."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.control.command import COMMANDS
from leveret.control.refusal import NOT_FOUND, Refused
from leveret.wire import grammar

from .admin import MINE, Browser, missing
from .publishers import attach, attached, publishers, refusal
from .support import recovered
from .test_queries import Rig

DAY_US = 86_400_000_000


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.bench.batches.append(b"".join(rig.bench.broker.snapshot()))
    attached(rig.client, "P")
    rig.client.publish("nowhere", b"1")
    rig.client.publish("nowhere", b"2", mandatory=True)
    rig.client.frames()
    return rig


def forget(rig: Rig, name: str) -> None:
    COMMANDS["forget_publisher"](name=name).run(rig.node)  # type: ignore[call-arg]


def test_references_are_listed(rig: Rig) -> None:
    row = {
        "vhost": "/", "name": "P", "owner": "guest", "epoch": 1, "last_id": 2, "refused": 1,
        "connection": rig.client.peer.name, "idle_ms": 0,
    }  # fmt: skip
    assert rig.ask("list_publishers") == rig.ask("list_publishers", vhost="/") == [row]
    assert rig.ask("list_publishers", name="other") == []
    assert rig.ask("get_publisher", vhost="/", name="P") == row
    rig.client.send(1, grammar.BASIC_CANCEL, consumer_tag="publisher")
    rig.bench.pass_time(2_500_000)
    assert rig.ask("list_publishers") == [row | {"connection": None, "idle_ms": 2500}]
    assert rig.refusal("get_publisher", vhost="/", name="Q") == (NOT_FOUND, "no publisher reference 'Q' in vhost '/'")


def test_a_reference_is_forgotten_and_its_channel_closed(rig: Rig) -> None:
    assert COMMANDS["forget_publisher"].changes
    forget(rig, "P")
    assert rig.ask("list_publishers") == []
    assert refusal(rig.client) == (406, "PRECONDITION_FAILED - publisher reference 'P' was forgotten")
    assert publishers(recovered(rig.bench.batches)).by_name == {}
    client = rig.bench.connect()
    attach(client, "P", epoch=1)
    assert "publisher reference 'P' was forgotten" in refusal(client)[1]


def test_the_name_of_a_reference_that_was_closed_is_forgotten(rig: Rig) -> None:
    rig.client.send(1, grammar.BASIC_CANCEL, consumer_tag="publisher")
    for _ in range(402):
        rig.bench.pass_time(DAY_US)
    known = publishers(rig.bench)
    assert (list(known.by_name), list(known.closed.values())) == ([], ["guest"])
    forget(rig, "P")
    assert publishers(recovered([*rig.bench.batches, rig.bench.sync()])).closed == {}


def test_nothing_is_forgotten_that_is_not_there(rig: Rig) -> None:
    with pytest.raises(Refused) as refused:
        forget(rig, "Q")
    assert (refused.value.kind, refused.value.reason) == (NOT_FOUND, "no publisher reference 'Q' in vhost '/'")


async def test_over_http() -> None:
    browse = Browser()
    row = {"vhost": MINE, "name": "P", "last_id": 3}
    browse.control.answers |= {
        "list_publishers": lambda fields: [row], "get_publisher": lambda fields: row,
        "forget_publisher": lambda fields: None,
    }  # fmt: skip
    assert (await browse("GET", f"/api/publishers/{MINE}")).json() == [row]
    assert (await browse("GET", f"/api/publishers/{MINE}/P")).json() == row
    assert (await browse("DELETE", f"/api/publishers/{MINE}/P")).status_code == 204
    assert browse.control.fields_of("forget_publisher") == {"vhost": MINE, "name": "P"}
    browse.control.answers["forget_publisher"] = missing
    assert (await browse("DELETE", f"/api/publishers/{MINE}/P")).status_code == 404
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "http-api.md").read_text()
    assert "`/api/publishers/VHOST/NAME`" in guide
