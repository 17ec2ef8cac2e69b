"""examples/late_flights: Spark Declarative Pipelines read a stream into a table, and write into a queue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from leveret.client import BlockingChannel
from leveret.spark import java_home

from .cluster import FASTER
from .streams import declare

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "late_flights"
SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}


@pytest.fixture
def url(broker: str) -> str:
    return broker


def test_a_declarative_pipeline(broker: str, channel: BlockingChannel, tmp_path: Path) -> None:
    for left_by_another_test in ("flights", "late"):  # the example has fixed names
        channel.delete_queue(left_by_another_test)
    declare(channel, "flights")
    channel.declare_queue("late")
    for number in range(20):
        channel.publish(json.dumps({"flight": f"UA{number}", "delay_min": number}).encode(), "", "flights")
    channel.wait_for_confirms()
    spec = (EXAMPLE / "spark-pipeline.yml").read_text().replace("/tmp/late_flights", str(tmp_path / "storage"))
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    (tmp_path / "transformations").symlink_to(EXAMPLE / "transformations")
    environment = {
        **os.environ, "LEVERET_URL": broker, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(FASTER), os.environ.get("PYTHONPATH", "")])),
    }  # fmt: skip
    program = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    conf = [word for name, text in SETTINGS.items() for word in ("--conf", f"{name}={text}")]
    run = subprocess.run(
        [program, "run", "--spec", tmp_path / "spark-pipeline.yml", *conf],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:] + run.stdout[-2000:]
    late = channel.declare_queue("late", passive=True).message_count
    bodies = [json.loads(message.body) for _ in range(late) if (message := channel.get("late", no_ack=True))]
    assert bodies == [{"offset": number, "flight": f"UA{number}", "delay_min": number} for number in range(16, 20)]
    assert list((tmp_path / "spark-warehouse" / "flights").glob("*.parquet"))
