"""The directory of results; files that the demo has not written are never deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq

from leveret.demo.account.crossing import Copy
from leveret.demo.account.reconcile import Notice
from leveret.demo.errors import DemoError
from leveret.demo.plan import MARKER, DemoPlan


def prepare(output: Path) -> None:
    """Create the directory, or clear it of an earlier run.

    Raises:
        DemoError: it has other content, or can't be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()) and not (output / MARKER).exists():
            raise DemoError(
                f"{output} is not empty and was not created by an earlier demo: name another directory with --output"
            )
        for path in output.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (output / MARKER).write_text("Results of `leveret demo`; the next run empties this directory.\n")
        (output / "records").mkdir()
    except OSError as error:
        raise DemoError(f"the output directory {output} can't be prepared: {error}") from error


def read_ids(path: Path, column: str = "id") -> list[str]:
    """Read one column of a Parquet file, or of all files in a directory; empty if no file exists.

    A missing value becomes ``""``, which is no flight's id and so shows as unexpected.
    """
    if not path.exists() or (path.is_dir() and not any(path.rglob("*.parquet"))):
        return []
    values = pq.read_table(path, columns=[column]).column(column).to_pylist()
    return [value or "" for value in values]


def read_copies(path: Path) -> list[Copy]:
    """Read message id and app_id of each message from a Parquet file, or all files in a directory."""
    return list(zip(read_ids(path), read_ids(path, "app_id"), strict=True))


def read_notices(plan: DemoPlan) -> list[Notice]:
    """Read the collector's notices."""
    rows = pq.read_table(plan.records / "delivered.parquet").to_pylist()
    return [Notice(row["id"], row["sent_ns"], row["delay_ms"], row["received_ns"]) for row in rows]
