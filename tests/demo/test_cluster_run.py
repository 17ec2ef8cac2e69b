"""The demo with --federated --cluster as its user runs it: a Spark cluster that loses an executor, and an audit."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from .running import demo, report, survivors

pytestmark = [pytest.mark.spark, pytest.mark.needs("minutes"), pytest.mark.timeout(600)]


def test_a_run_adds_up_over_a_cut_link_a_killed_broker_and_a_lost_executor(tmp_path: Path) -> None:
    done = demo(tmp_path, "--federated", "--cluster", flights=2_000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything adds up" in done.stdout
    for said in ("Spark: executor killed in a micro-batch", "JFK: link cut at", "LGA: broker killed at", "caught up"):
        assert said in done.stdout
    flights = pq.read_table(tmp_path / "flights.parquet").to_pandas()
    assert flights["message_id"].nunique() == len(flights) == 2_000
    stages = report(tmp_path)["stages"]
    for name in ("confirmed", "read", "replies", "written"):
        assert stages[name]["messages"] == 2_000
    # all flights, all requests of lookups, all notices
    assert stages["audited"]["messages"] >= 4_000 + stages["delivered"]["messages"]
    assert not any(stages["audited"][fault] for fault in ("lost", "duplicated", "unexpected", "early"))
    audit = json.loads((tmp_path / "report.json").read_text())["audit"]["figures"]
    assert audit["brokers"] == 4
    assert audit["delayed"] == stages["delivered"]["messages"]
    assert audit["calls"] >= 2_000
    assert "<html" in (tmp_path / "audit.html").read_text()
    hops = pq.read_table(tmp_path / "audit.parquet", filters=[("exchange", "=", "flights")]).to_pandas()
    assert set(hops["broker"]) == {"EWR", "JFK", "LGA"}
    # messages under way at a cut or a kill have crossed their link twice, unseen by the trace
    of_whole = hops["broker"] == "EWR"
    assert set(hops[of_whole]["hops"].map(len)) == {1}, "each flight has crossed its link once"
    assert not (tmp_path / "broker").exists()
    assert survivors(str(tmp_path), 10) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cluster"], "--cluster needs --federated"),
        (["--cluster", "--federated", "--url", "amqp://localhost"], "can't be used with --url"),
    ],
)
def test_what_does_not_fit_together_is_told(tmp_path: Path, options: list[str], said: str) -> None:
    done = demo(tmp_path / "results", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "results").exists()
