"""What the parsed bodies of a lake hold, in numbered versions: fields come, and none goes or changes its type."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

from leveret.pipelines.archives.batches import STATE
from leveret.pipelines.archives.storage import Storage
from leveret.spark.rows.typed import spark_type
from leveret.wire.body_schema import Column

_HOME: Final = f"{STATE}/schemas"


@dataclass(frozen=True)
class BodySchema:
    """A version. columns: the fields of ``data``, none where nothing is parsed; is_exact: rows have content_header."""

    version: int = 0
    columns: tuple[Column, ...] = ()
    is_exact: bool = False

    def struct(self) -> StructType:
        """The type of ``data``."""
        return StructType([StructField(column.name, spark_type(column)) for column in self.columns])

    def document(self) -> dict[str, Any]:
        """As it is written down."""
        return {"columns": [to_json(column) for column in self.columns], "is_exact": self.is_exact}


class Schemas:
    """The versions of a lake, one file each. A version is never changed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def newest(self) -> BodySchema:
        """The version that holds now."""
        numbers = [int(name[:9]) for name in self._storage.names(_HOME) if name.endswith(".json")]
        return self.version(max(numbers, default=0))

    def version(self, number: int) -> BodySchema:
        """A version by its number; 0 is the one of a lake that has none."""
        if number == 0:
            return BodySchema()
        found = json.loads(self._storage.read(_path(number)))
        return BodySchema(number, tuple(map(of_json, found["columns"])), found["is_exact"])

    def grow(self, grown: Callable[[BodySchema], BodySchema]) -> BodySchema:
        """The newest version as ``grown`` makes it, written down as the next one if that is another one.

        On a local disk several processes may do so at once: who comes second grows what the first has written.
        """
        while True:
            newest = self.newest()
            wanted = grown(newest)
            if wanted.document() == newest.document():
                return newest
            number = newest.version + 1
            self._storage.make_directory(_HOME)
            if self._storage.publish_new(_path(number), json.dumps(wanted.document()).encode()):
                self._storage.sync_directories({_HOME})
                return BodySchema(number, wanted.columns, wanted.is_exact)


def to_json(column: Column) -> dict[str, Any]:
    """A column as JSON has it."""
    found: dict[str, Any] = {"name": column.name, "kind": column.kind}
    return {**found, "parts": [to_json(part) for part in column.parts]} if column.parts else found


def of_json(found: dict[str, Any]) -> Column:
    """The column that :func:`to_json` made this of."""
    return Column(found["name"], found["kind"], [of_json(part) for part in found.get("parts", [])])


def _path(number: int) -> str:
    return f"{_HOME}/{number:09d}.json"
