"""Operators' commands for federation links, on links with given states."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leveret.broker.link_peer import LinkPeer
from leveret.broker.peer import Peer
from leveret.cli.ctl.output import print_rows
from leveret.cli.ctl.spec import AnswerTable, DynamicTable
from leveret.cli.ctl.tables import CTL
from leveret.cli.ctl.tables.federation import FOR_PEOPLE
from leveret.control.calls.line import Caller, call_line, result_of
from leveret.control.control import Control
from leveret.control.host import Host
from leveret.control.metrics.text import exposition
from leveret.control.node import BrokerNode
from leveret.control.refusal import NOT_FOUND, Refused
from leveret.federation.names import connection_name, link_id
from leveret.federation.status import ERROR, PAUSED, REFUSED, RUNNING, STARTING, LinkStatus

from .asking import whole
from .metrics import samples
from .support import SECOND_US, Bench

GOOD, BAD, STILL = (link_id("/", "flights", upstream) for upstream in ("ewr", "jfk", "lga"))
# rabbitmqctl's columns, in its order (measured on 3.10.8)
RABBITMQS = [
    "error", "exchange", "id", "last_changed", "local_connection", "queue", "status", "type", "upstream",
    "upstream_exchange", "upstream_queue", "uri", "vhost",
]  # fmt: skip


class Office:
    """A broker with a list of links; also the part of a host and a federator that these commands use."""

    def __init__(self) -> None:
        self.bench = Bench()
        broker = self.bench.broker
        broker.definitions.put("vhost", {"name": "other", "description": "", "tags": []})
        self.federator, self.started_us = self, self.bench.now_us
        self.asked: list[tuple[str, str]] = []
        self.streams = SimpleNamespace(archives={})
        self.door = LinkPeer(broker, broker.vhosts["/"], connection_name("ewr", "all"), True, "key")
        self.links = [
            LinkStatus(
                GOOD, "/", "flights", "ewr", "all", RUNNING, "", self.bench.now_us, "amqp://ewr:5672/%2F", "flights",
                "federation: flights -> hq", 2, messages=7, looped=2, known=1, unacknowledged=3, lag=11, bindings=5,
                unbound=1, reconnects=4, connection=self.door.number,
                rejected=6,
            ),
            LinkStatus(BAD, "/", "flights", "jfk", "all", ERROR, "connection refused", self.bench.now_us),
            LinkStatus("", "/", "inner", "", "all", REFUSED, "internal exchanges are never federated", 0),
            LinkStatus(STILL, "other", "flights", "lga", "all", PAUSED, "", self.bench.now_us, warning="another type"),
        ]  # fmt: skip
        self.node = BrokerNode(broker, cast(Host, self), "leveret@test", "/data", "1", "interpreted")
        self.control = Control(self.node)

    # -- as a host

    def now_us(self) -> int:
        return self.bench.now_us

    def peers(self) -> list[Peer]:
        return [self.door]

    def unsent_octets(self, peer: Peer) -> int:
        raise AssertionError("a link's own connection has no socket")

    async def settled(self) -> None:
        self.bench.sync()

    # -- as a federator

    def statuses(self) -> list[LinkStatus]:
        return [replace(link) for link in self.links]

    def _did(self, what: str, id: str) -> bool:
        self.asked.append((what, id))
        return any(link.id == id for link in self.links)

    def restart(self, id: str) -> bool:
        return self._did("restart", id)

    def pause(self, id: str) -> bool:
        return self._did("pause", id)

    def resume(self, id: str) -> bool:
        return self._did("resume", id)

    # -- for tests

    def numbers(self) -> list[Any]:
        """Return the metrics of links."""
        found: list[Any] = self.do("metrics", families=["leveret_federation"])
        return [item for item in found if item[0].startswith("leveret_federation")]

    def do(self, command: str, **fields: Any) -> Any:
        line = asyncio.run(whole(self.control.answer(call_line(command, fields, Caller("root", "pid:1", "ctl")))))
        return result_of(line)

    def status(self, **fields: Any) -> dict[str, dict[str, Any]]:
        return {link["upstream"]: link for link in self.do("federation_status", **fields)}


@pytest.fixture
def office() -> Office:
    return Office()


def test_what_rabbitmq_says_of_a_link_and_what_only_we_say(office: Office) -> None:
    link = office.status()["ewr"]
    channel = link.pop("local_channel")
    assert (channel["confirm"], channel["number"], channel["user"]) == (True, 1, "none")
    assert channel["name"] == f"{office.door.name} (1)"
    assert channel["connection_details"] == {
        "name": office.door.name, "peer_host": "undefined", "peer_port": "undefined",
    }  # fmt: skip
    assert link.pop("timestamp").startswith("2023-11-1")
    assert link == {
        "node": "leveret@test", "exchange": "flights", "upstream_exchange": "flights", "type": "exchange", "vhost": "/",
        "upstream": "ewr", "id": GOOD, "status": "running", "uri": "amqp://ewr:5672/%2F",
        "local_connection": office.door.name,
        "since_ms": office.bench.now_us // 1000, "policy": "all", "upstream_queue": "federation: flights -> hq",
        "max_hops": 2, "unacknowledged": 3, "lag": 11, "bindings": 5, "unbound": 1, "reconnects": 4,
        "messages": 7, "messages_details": {"rate": 0.0}, "looped": 2, "looped_details": {"rate": 0.0},
        "known": 1, "known_details": {"rate": 0.0}, "buried": 6, "buried_details": {"rate": 0.0},
    }  # fmt: skip
    down = office.status()["jfk"]
    assert (down["status"], down["error"], down["lag"]) == ("error", "connection refused", None)
    assert "local_connection" not in down
    assert "warning" not in down
    assert office.status()["lga"]["warning"] == "another type"


@pytest.fixture
def east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a local time that is three hours ahead."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "XXX-3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("east")
def test_a_time_is_local_and_as_rabbitmq_writes_it(office: Office) -> None:
    office.links[0].since_us = 1_795_326_573 * SECOND_US  # 2026-11-22 05:49:33
    assert office.status()["ewr"]["timestamp"] == "2026-11-22 8:49:33"


def test_which_are_down(office: Office) -> None:
    assert list(office.status()) == ["ewr", "jfk", "", "lga"]
    assert list(office.status(only_down=True)) == ["jfk", "lga"]
    office.links[1].status = STARTING
    assert list(office.status(only_down=True)) == ["lga"]
    assert list(office.status(only_down=True, vhost="/")) == []
    assert list(office.status(vhost="other")) == ["lga"]
    with pytest.raises(Refused) as refused:
        office.status(vhost="nowhere")
    assert refused.value.kind == NOT_FOUND


def test_an_exchange_that_cannot_be_federated_is_there_with_the_reason(office: Office) -> None:
    row = office.status()[""]
    assert (row["exchange"], row["status"], row["id"]) == ("inner", "not_federated", "")
    assert row["error"] == "internal exchanges are never federated"
    assert (row["timestamp"], row["since_ms"]) == ("", None)


def test_rates_are_those_of_each_link(office: Office) -> None:
    office.status()
    office.bench.now_us += 2 * SECOND_US
    office.links[0].messages += 100
    links = office.status()
    assert links["ewr"]["messages_details"] == {"rate": 50.0}
    assert links["lga"]["messages_details"] == {"rate": 0.0}
    del office.links[0]
    office.status()
    assert GOOD not in office.node.links


@pytest.mark.parametrize("verb", ["restart", "pause", "resume"])
def test_what_is_done_is_done_to_one_link_and_audited(
    office: Office, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    command = f"{verb}_federation_link"
    assert office.do(command, id=GOOD) is None
    assert office.asked == [(verb, GOOD)]
    for fields in ({"id": "12345678"}, {"id": ""}, {"id": GOOD, "vhost": "other"}):
        with pytest.raises(Refused, match=r"^Link with the given ID was not found$") as refused:
            office.do(command, **fields)
        assert refused.value.kind == NOT_FOUND
    assert office.asked == [(verb, GOOD)]
    assert office.do(command, id=STILL, vhost="other") is None
    lines = [record for record in caplog.records if record.name == "leveret.audit"]
    assert [json.loads(line.getMessage().removeprefix("audit "))["outcome"] for line in lines] == [
        "ok", "not_found", "not_found", "not_found", "ok",
    ]  # fmt: skip
    assert lines[0].levelno == logging.INFO


def test_the_connection_of_a_link_is_one_among_the_others(office: Office) -> None:
    second = LinkPeer(office.bench.broker, office.door.vhost, connection_name("ewr", "all"), True, "other key")
    assert second.name != office.door.name
    (view,) = office.do("list_connections")
    assert view["pid"].startswith("<leveret@test.")
    del view["pid"]
    assert view == {
        "name": office.door.name, "user_provided_name": "Federation link (upstream: ewr, policy: all)",
        "client_properties": {"connection_name": "Federation link (upstream: ewr, policy: all)"},
        "vhost": "/", "node": "leveret@test", "type": "direct", "protocol": "Direct 0-9-1", "user": "none",
        "user_who_performed_action": "none", "state": "running", "channels": 1, "connected_at": view["connected_at"],
    }  # fmt: skip


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_the_numbers_of_each_link(office: Office) -> None:
    found = {(name, tuple(labels.values())): value for name, labels, value in samples(office.numbers())}
    states = {name: found["rabbitmq_federation_links", (name,)] for name in (STARTING, RUNNING, ERROR, PAUSED, REFUSED)}
    assert states == {"starting": 0, "running": 1, "error": 1, "paused": 1, "not_federated": 1}
    mine = ("/", "flights", "ewr", GOOD)
    names = ("up", "messages_total", "looped_total", "known_total", "buried_total", "reconnects_total",
             "unacknowledged", "lag_messages", "bindings", "unbound")  # fmt: skip
    assert [found[f"leveret_federation_link_{name}", mine] for name in names] == [1, 7, 2, 1, 6, 4, 3, 11, 5, 1]
    assert found["leveret_federation_link_up", ("/", "flights", "jfk", BAD)] == 0
    assert not any(labels[-1] == BAD for name, labels in found if name == "leveret_federation_link_lag_messages")
    assert not any("inner" in labels for _, labels in found)


def test_prometheus_can_read_them(office: Office) -> None:
    office.links = [replace(office.links[0], exchange='a"\\\n', messages=12_345_678)]
    text = "".join(exposition(office.numbers()))
    labels = f'vhost="/",exchange="a\\"\\\\\\n",upstream="ewr",id="{GOOD}"'
    assert f"leveret_federation_link_messages_total{{{labels}}} 12345678\n" in text
    assert text.count("# TYPE leveret_federation_link_messages_total counter\n") == 1
    assert "# TYPE leveret_federation_link_lag_messages gauge\n" in text
    assert 'rabbitmq_federation_links{status="running"} 1\n' in text


# -- the table ---------------------------------------------------------------------------------------------------------


def printed(office: Office, formatter: str, capsys: pytest.CaptureFixture[str], *columns: str) -> str:
    table = CTL["federation_status"].show
    assert isinstance(table, AnswerTable)
    print_rows(DynamicTable(table, office.do("federation_status")), columns, formatter, True)
    return capsys.readouterr().out


def test_scripts_get_rabbitmqctls_columns_first(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    header, first, second, *_ = printed(office, "table", capsys).splitlines()
    assert header.split("\t")[: len(RABBITMQS)] == RABBITMQS
    cells = dict(zip(header.split("\t"), first.split("\t"), strict=True))
    assert (cells["error"], cells["queue"], cells["status"], cells["lag"]) == ("", "", "running", "11")
    assert cells["local_connection"] == office.door.name
    assert second.split("\t")[0] == "connection refused"
    (row, *_) = json.loads(printed(office, "json", capsys))
    assert list(row)[: len(RABBITMQS)] == RABBITMQS
    assert (row["messages"], row["rate"], row["max_hops"]) == (7, 0.0, 2)
    assert printed(office, "table", capsys, "upstream", "status").splitlines()[1] == "ewr\trunning"


def test_people_get_what_they_look_for(
    office: Office, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = printed(office, "pretty_table", capsys)
    header = [cell.strip() for cell in text.splitlines()[1].strip("│").split("│")]
    assert tuple(header) == FOR_PEOPLE
    assert "connection refused" in text
    assert "another type" in text
    assert "internal exchanges are never federated" in text


# -- the guides --------------------------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs"


def test_the_guide_tells_of_every_number(office: Office) -> None:
    text = (DOCS / "reference/ctl.md").read_text()
    for name in {name for name, _, _ in samples(office.numbers())}:
        assert f"`{name}`" in text or f"`…{name.removeprefix('leveret_federation_link')}`" in text
    section = text.partition("## Federation links")[2].partition("\n## ")[0]
    for column in ("messages", "rate", "lag", "unacknowledged", "looped", "known", "buried", "max_hops", "bindings",
                   "unbound", "reconnects", "since", "warning", "local_connection", "status", "error",
                   "uri"):  # fmt: skip
        assert f"`{column}`" in section.partition("Direct reply-to")[0]


def test_the_guide_tells_of_every_field(office: Office) -> None:
    section = (DOCS / "reference/http-api.md").read_text().partition("## Federation links")[2].partition("\n## ")[0]
    rabbitmqs = {"node", "exchange", "upstream_exchange", "type", "vhost", "upstream", "id", "status", "uri",
                 "timestamp", "error", "local_connection", "local_channel"}  # fmt: skip
    for field in office.status()["ewr"].keys() - rabbitmqs:
        assert field.endswith("_details") or f"`{field}`" in section
