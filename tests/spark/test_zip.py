"""``leveret spark zip``: what executors need if they have only Python, Spark and pyarrow."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest
from pyspark.cloudpickle import dumps
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

from leveret.cli.spark.zip import write_zip
from leveret.client import BlockingConnection, Properties
from leveret.spark import LeveretDataSource
from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA
from leveret.spark.rpc import RpcCaller
from leveret.testing.spark_cluster import SPARK_HOME

from .cluster import bare_python
from .service import Service

SOURCES = Path(__file__).parents[2] / "src"

IMPORT_ALL = """
import importlib, importlib.util, sys, zipfile
missing = ("numpy", "pandas", "librt", "mypy_extensions", "click", "msgspec", "rich", "grpc", "fastavro")
there = [name for name in missing if importlib.util.find_spec(name)]
assert not there, there
names = [name[:-3].removesuffix("/__init__").replace("/", ".") for name in zipfile.ZipFile(sys.argv[1]).namelist()]
for name in names:
    assert sys.argv[1] in importlib.import_module(name).__file__
print(len(names))
"""

ASK = """
import sys
import pyarrow as pa
from leveret.spark.rpc import RpcCaller
batch = pa.record_batch([pa.array(["a", None, "b"])], names=["body"])
[answered] = RpcCaller(sys.argv[1], "", sys.argv[2], "body", "reply", 2, 60.0)(iter([batch]))
print(answered["reply"].to_pylist())
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "leveret.zip"
    write_zip(path, SOURCES / "leveret")
    return path


def bare(directory: Path, archive: Path, program: str, *arguments: object) -> str:
    """Return the output of a program in a Python with pyarrow, Spark as executors have it, and the archive."""
    path = [archive, *SPARK_HOME.glob("python/lib/*.zip")]
    done = subprocess.run(
        [bare_python(directory), "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_everything_in_it_can_be_imported_with_nothing_but_pyarrow(archive: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(archive).namelist()
    assert int(bare(tmp_path, archive, IMPORT_ALL, archive)) == len(names)
    rooms = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert rooms == {"wire", "client", "delay", "spark", "pipelines"}
    few = {"pyspark_leveret.py", "leveret/__init__.py", "leveret/_core.py", "leveret/tcp_settings.py"}
    assert {name for name in names if name.count("/") < 2} == few


def test_a_task_runs_with_nothing_but_pyarrow(archive: Path, tmp_path: Path, broker: str) -> None:
    with Service(broker) as service:
        assert bare(tmp_path, archive, ASK, broker, service.queue) == "[b'A', None, b'B']"


def test_the_same_sources_give_the_same_octets(archive: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-m", "leveret.cli.main", "spark", "zip", "-o", str(again)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert told == f"{again}: {archive.stat().st_size:,} octets\n"
    assert again.read_bytes() == archive.read_bytes()
    assert list(tmp_path.iterdir()) == [again]


def test_a_compiled_module_without_its_source_is_told(tmp_path: Path) -> None:
    room = tmp_path / "leveret" / "wire"
    room.mkdir(parents=True)
    (room / "frames.cpython-311-x86_64-linux-gnu.so").touch()
    with pytest.raises(click.ClickException, match=r"wire/frames\.cpython.* is compiled and its source file is"):
        write_zip(tmp_path / "leveret.zip", room.parent)


def test_a_place_that_cannot_be_written_is_told() -> None:
    command = [sys.executable, "-m", "leveret.cli.main", "spark", "zip", "-o", "/proc/leveret.zip"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: cannot write /proc/leveret.zip: No such file or directory\n")


class Needed(pickle.Unpickler):
    """Records the modules from which a pickle takes classes and functions."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> object:
        self.modules.add(module)
        return super().find_class(module, name)


def test_nothing_compiled_is_pickled(broker: str) -> None:
    with BlockingConnection(broker, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue("spark.pickled", arguments={"x-queue-type": "stream"})
        channel.confirm_select()
        channel.publish(b"body", "", "spark.pickled", Properties(message_id="m"))
        channel.wait_for_confirms(30)
        rows = StructType([StructField("body", StringType())])
        of_stream = LeveretDataSource({"url": broker, "stream": "spark.pickled"})
        of_queue = LeveretDataSource({"url": broker, "queue": "q", "delayPrefix": "mine", "delayUnitMs": "10"})
        batch = of_stream.reader(STREAM_SCHEMA)
        driver = of_stream.streamReader(STREAM_SCHEMA)
        start = driver.initialOffset()
        pickled = [
            of_stream,
            of_queue,
            batch,
            *batch.partitions(),
            of_stream.streamReader(STREAM_SCHEMA),
            *driver.partitions(start, driver.latestOffset(start, ReadAllAvailable())),
            of_queue.simpleStreamReader(QUEUE_SCHEMA),
            of_queue.writer(rows, False),
            of_queue.streamWriter(rows, False),
            RpcCaller(broker, "", "q", "body", "reply", 1, 1.0),
        ]
        driver.stop()
        channel.delete_queue("spark.pickled")
    needed = Needed(dumps(pickled))
    assert len(needed.load()) == len(pickled) >= 10
    ours = {module for module in needed.modules if module.startswith("leveret")}
    assert {module.split(".")[1] for module in ours} <= {"spark", "delay"}
    assert "leveret.spark.rpc" in ours
    others = {module.split(".")[0] for module in needed.modules - ours}
    assert others <= {"builtins", "pyspark", "pyarrow", "collections", "functools", "fractions", "decimal", "datetime"}
