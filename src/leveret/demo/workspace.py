"""The directory of results; files that the demo has not written are never deleted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
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


def read_notices(plan: DemoPlan, delays_ms: Mapping[str, int]) -> list[Notice]:
    """Read the collector's notices; `delays_ms` are those that the input asks for, by flight id.

    A notice of a micro-batch that was released was published by the release, any other one by its task. A notice that
    was never published or asked for can't be proved to be on time, so it counts as early.
    """
    sent_ns: dict[str, int] = {}
    for path in (plan.records / "sent").iterdir():
        released = plan.records / "released" / path.name.partition("-")[0]
        released_ns = int(released.read_text()) if released.exists() else None
        rows = pq.read_table(path)
        for flight_id, ns in zip(rows["id"].to_pylist(), rows["sent_ns"].to_pylist(), strict=True):
            at_ns = released_ns or ns
            sent_ns[flight_id] = min(at_ns, sent_ns.get(flight_id, at_ns))
    rows = pq.read_table(plan.records / "delivered.parquet")
    return [
        Notice(flight_id, sent_ns.get(flight_id, received_ns), delays_ms.get(flight_id, 1), received_ns)
        for flight_id, received_ns in zip(rows["id"].to_pylist(), rows["received_ns"].to_pylist(), strict=True)
    ]
