"""Lakes that tests write themselves, row by row."""

from __future__ import annotations

import json
from pathlib import Path


def declare(lake: Path, *, is_exact: bool = True) -> None:
    """Mark a directory of Parquet files as a lake, as the archive does; `is_exact`: with content_header."""
    schemas = lake / "_leveret" / "schemas"
    schemas.mkdir(parents=True)
    identity = {"form": "parquet", "partition_by": [], "version": 1}
    (schemas.parent / "lake.json").write_text(json.dumps(identity))
    (schemas / "000000001.json").write_text(json.dumps({"columns": [], "is_exact": is_exact}))
