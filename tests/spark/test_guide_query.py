"""docs/guides/spark/source-and-sink.md and rpc.md: their programs run on a real broker and do what the pages say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import DataFrame, SparkSession

from leveret.client import BlockingChannel
from leveret.spark import RECOMMENDED
from leveret.testing.processes import LeveretProcess

from .service import Service
from .support import fill, messages, run_available

pytestmark = pytest.mark.spark

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark" / "source-and-sink.md"
RPC = GUIDE.with_name("rpc.md")
QUEUES = ("flights", "late", "announced", "failed")


def blocks(section: str) -> list[str]:
    text = re.split(r"^## ", GUIDE.read_text().partition(f"\n## {section}\n")[2], maxsplit=1, flags=re.M)[0]
    return re.findall(r"```python\n(.*?)```", text, re.S)


class Guide:
    """Runs programs of the guide, each with the names that the first one has set."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._port = urlsplit(url).port
        self._names: dict[str, Any] = {"session": spark}

    def run(self, text: str) -> dict[str, Any]:
        """Run a program; return its names. Its queries process the available messages, and are stopped."""
        text = text.replace('leveret_spark.session("flights")', "session").replace("/data/", f"{self.folder}/")
        names = dict(self._names)
        exec(compile(text.replace("localhost:5672", f"localhost:{self._port}"), str(GUIDE), "exec"), names)
        if "session" in text:
            self._names = names
        for query in self.spark.streams.active:
            query.processAllAvailable()
            query.stop()
        return names


@pytest.fixture(scope="module")
def broker_of_the_guide() -> Iterator[LeveretProcess]:
    """A broker with the queues of the guide."""
    with LeveretProcess() as process:
        yield process


@pytest.fixture
def url(broker_of_the_guide: LeveretProcess) -> str:
    return broker_of_the_guide.url


@pytest.fixture
def guide(spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path) -> Guide:
    for name in QUEUES:
        channel.declare_queue(name)
        channel.purge_queue(name)
    fill(channel, "flights", 0, 20)
    return Guide(spark.newSession(), url, tmp_path)


def test_session_and_registration(guide: Guide, channel: BlockingChannel) -> None:
    first, register = blocks("Session and registration")
    names = guide.run(first)
    assert sum(progress["numInputRows"] for progress in names["query"].recentProgress) == 20
    assert messages(channel, "flights") == 0
    assert messages(channel, "late") == 0, "they are delayed"
    guide.run(register)


def test_asking_a_service_and_foreach_batch(guide: Guide, url: str, channel: BlockingChannel) -> None:
    guide.run(blocks("Session and registration")[0])
    [ask] = re.findall(r"```python\n(.*?)```", RPC.read_text(), re.S)
    store, announce = blocks("foreachBatch, Connect, triggers")
    ids = {f"id-{number}" for number in range(20)}
    with Service(url, queue="planes") as service:
        answers = []

        def keep(frame: DataFrame, batch: int) -> None:
            answers.extend(bytes(row.reply).decode() for row in frame.collect())

        fill(channel, "flights", 0, 20)
        run_available(guide.run(ask)["answered"].writeStream.foreachBatch(keep), guide.folder / "asked")
        assert set(answers) == {text.upper() for text in ids}
        fill(channel, "flights", 0, 20)
        guide.run(store)
        stored = guide.spark.read.parquet(f"{guide.folder}/flights").collect()
        assert {row.flight for row in stored} == ids
        assert {row.batch for row in stored} == {0}
        fill(channel, "flights", 0, 20)
        guide.run(announce)
        assert len(service.seen) == 40, "the kept replies serve both writes"
    assert messages(channel, "announced") == 20
    assert messages(channel, "failed") == 0


def test_each_setting_is_explained() -> None:
    text = GUIDE.read_text().partition("| setting | | why, and when not |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in text.splitlines()]
    told = {row[0].strip("| `"): row[1].strip("`") for row in rows}
    assert {name: value.rpartition(".")[2] for name, value in RECOMMENDED.items()} == {
        name: value.removeprefix("…") for name, value in told.items()
    }
    assert all(len(row[2]) > 10 for row in rows)
