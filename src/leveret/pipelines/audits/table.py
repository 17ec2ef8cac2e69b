"""A Parquet directory that is replaced atomically: readers see the old table or the new one."""

from __future__ import annotations

import ctypes
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from leveret.pipelines.errors import PipelineError, cause

_AT_CWD: Final = -100
_EXCHANGE: Final = 2


def replace(frame: DataFrame, path: str) -> None:
    """Write the rows into a directory, replacing an existing table.

    On a local file system old and new are exchanged in one step (renameat2), so that a crash leaves one of them; where
    the system lacks that, the old one is moved aside first. Elsewhere (``hdfs://``, ``s3a://``) Spark overwrites.

    Raises:
        PipelineError: it cannot be written, or the directory is no Parquet table.
    """
    if "://" in path and not path.startswith("file://"):
        _written(path, lambda: frame.write.mode("overwrite").parquet(path))
        return
    target = Path(path.removeprefix("file://")).absolute()
    if target.exists() and not (target.is_dir() and _is_table(target)):
        raise PipelineError(f"{target} exists and is not a Parquet table: name another directory")
    for left in target.parent.glob(f".{target.name}.*.draft"):
        shutil.rmtree(left, ignore_errors=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.draft")
    _written(path, lambda: frame.write.parquet(draft.as_uri()))
    if not draft.is_dir():
        raise PipelineError(
            f"Spark's executors wrote {draft}, but it does not exist here: the directory must be shared"
        )
    _swap(draft, target)
    shutil.rmtree(draft, ignore_errors=True)


def _written(path: str, write: Callable[[], None]) -> None:
    try:
        write()
    except Exception as error:
        raise PipelineError(f"the table {path} can't be written: {cause(error)}") from error


def _is_table(directory: Path) -> bool:
    names = [child.name for child in directory.iterdir()]
    return all(name.startswith(("_", ".", "part-")) for name in names)


def _swap(draft: Path, target: Path) -> None:
    """Exchange draft and target; an old table ends in the draft's place, or is deleted."""
    if not target.exists():
        draft.rename(target)
        return
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(_AT_CWD, os.fsencode(draft), _AT_CWD, os.fsencode(target), _EXCHANGE) == 0:
        return
    aside = draft.with_suffix(".old.draft")
    target.rename(aside)
    draft.rename(target)
    shutil.rmtree(aside, ignore_errors=True)
