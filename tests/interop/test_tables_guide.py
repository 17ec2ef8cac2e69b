"""docs/guides/streams-as-tables.md: each program and query in it runs, on a real broker, with the documented result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leveret.lake.rows import COLUMNS
from leveret.lake.table_writer import ROW_GROUP_OCTETS, ROW_GROUP_ROWS
from leveret.net.disk.sealing import SEAL_AFTER_MS_DEFAULT
from leveret.store.disk import RealDisk
from leveret.store.tables import stream_directory, table_files
from leveret.testing.processes import LeveretProcess

from ..waiting import until

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "streams-as-tables.md"
FLIGHTS = 300


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.S)


def run(text: str, names: dict[str, Any]) -> None:
    exec(compile(text, str(GUIDE), "exec"), names)


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names that the guide's programs have set, after all of them ran in order."""
    folder = tmp_path_factory.mktemp("guide")
    [serve] = [line for line in GUIDE.read_text().splitlines() if line.startswith("    leveret serve")]
    assert serve.split()[2:] == ["--data-dir", "./data"]
    names: dict[str, Any] = {}
    with LeveretProcess(folder / "data") as broker, chdir(folder):
        publish, *readers, bad = blocks("python")
        run(publish.replace("localhost:5672", f"localhost:{broker.port}"), names)
        until_sealed(FLIGHTS)
        for reader in readers:
            run(reader.replace("localhost:5672", f"localhost:{broker.port}"), names)
        run(bad, names)
        until_sealed(FLIGHTS + 2)
        names["errors"] = duckdb.sql(blocks("sql")[0]).fetchall()
        names["connection"] = names["channel"].connection.close()
        yield names


def until_sealed(count: int) -> None:
    folder = stream_directory("data/tables", "/", "flights")
    assert folder in GUIDE.read_text()
    until(lambda: any(file.last == count - 1 for file in table_files(RealDisk(), folder)), "not sealed")


def test_duckdb(guide: dict[str, Any]) -> None:
    flights = [number for number in range(FLIGHTS) if number % 4 < 3]
    expected = []
    for index, station in enumerate(("EWR", "JFK", "LGA")):
        delays = [number % 50 for number in flights if number % 3 == index]
        expected.append((station, pytest.approx(sum(delays) / len(delays)), len(delays)))
    assert guide["late"] == expected


def test_polars(guide: dict[str, Any]) -> None:
    assert guide["newest"]["offset"].to_list() == list(range(290, FLIGHTS))
    assert guide["newest"]["delay_min"].to_list() == list(range(40, 50))


def test_pandas(guide: dict[str, Any]) -> None:
    assert sorted(guide["frame"]["offset"]) == [number for number in range(FLIGHTS) if number % 50 > 40]


def test_pyarrow(guide: dict[str, Any]) -> None:
    rows = sorted(guide["kinds"].to_pylist(), key=lambda row: int(row["offset"]))
    assert [dict(row["headers"])["attempt"]["integer"] for row in rows] == [number % 4 for number in range(10)]


def test_everything(guide: dict[str, Any]) -> None:
    assert guide["counted"] == FLIGHTS
    assert guide["worst"].rows() == [("EWR", 49), ("JFK", 49), ("LGA", 49)]
    assert guide["recent"] == [(FLIGHTS,)]


def test_the_message_again(guide: dict[str, Any]) -> None:
    assert guide["properties"].message_id == "flight-7"
    assert guide["properties"].headers == {"carrier": "UA", "attempt": 3}
    assert guide["size"] == len(guide["row"]["body"])


def test_what_cannot_be_read(guide: dict[str, Any]) -> None:
    text = GUIDE.read_text().partition("| offset | parse_error | body |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in text.splitlines()]
    assert [[str(value) for value in row] for row in guide["errors"]] == [
        [cell.replace("\\", "") for cell in row] for row in rows
    ]


def test_every_block_is_run_here() -> None:
    assert len(blocks("python")) == 8
    assert len(blocks("sql")) == 1
    assert GUIDE.read_text().count("```") == 18


def test_the_columns_and_figures_are_those_of_the_code() -> None:
    text = GUIDE.read_text()
    told = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", text.partition("## Columns")[2], re.M)))
    assert told == [*(column.name for column in COLUMNS), "parse_error"]
    [properties] = re.findall(r"^\| `properties` \| struct \| (.*) \|", text, re.M)
    assert re.findall(r"`(\w+)`", properties) == [each.name for each in COLUMNS[5].type]
    [headers] = re.findall(r"^\| `headers` \| .*? \| (.*) \|", text, re.M)
    assert re.findall(r"`(\w+)`", headers) == [each.name for each in COLUMNS[6].type.item_type]
    assert f"`x-leveret-seal-after-ms` ({SEAL_AFTER_MS_DEFAULT:,})" in text
    assert f"{ROW_GROUP_ROWS:,} rows or {ROW_GROUP_OCTETS >> 20} MiB" in text


def test_what_it_points_to_is_there() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", GUIDE.read_text()):
        assert (GUIDE.parent / target).exists()
