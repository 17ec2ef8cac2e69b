"""Numbered versions of the schema of a lake's parsed bodies: fields are added, and none is removed or changes its
type."""

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
    """A version: the fields of ``data`` (none if nothing is parsed), and whether rows have content_header."""

    version: int = 0
    columns: tuple[Column, ...] = ()
    is_exact: bool = False

    def struct(self) -> StructType:
        """Return the type of ``data``."""
        return StructType([StructField(column.name, spark_type(column)) for column in self.columns])

    def document(self) -> dict[str, Any]:
        """Return the version as it is stored."""
        return {"columns": [to_json(column) for column in self.columns], "is_exact": self.is_exact}


class Schemas:
    """The versions of a lake's schema, one file each. A version is never changed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def newest(self) -> BodySchema:
        """Return the current version."""
        numbers = [int(name[:9]) for name in self._storage.names(_HOME) if name.endswith(".json")]
        return self.version(max(numbers, default=0))

    def version(self, number: int) -> BodySchema:
        """Return a version by number; 0 is that of a lake without versions."""
        if number == 0:
            return BodySchema()
        found = json.loads(self._storage.read(_path(number)))
        return BodySchema(number, tuple(map(of_json, found["columns"])), found["is_exact"])

    def grow(self, grown: Callable[[BodySchema], BodySchema]) -> BodySchema:
        """Pass the newest version to ``grown``, and store the result as the next version if it differs.

        Several processes on a local disk may do so at once: the second one grows what the first has stored.
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
    """Convert a column to JSON."""
    found: dict[str, Any] = {"name": column.name, "kind": column.kind}
    return {**found, "parts": [to_json(part) for part in column.parts]} if column.parts else found


def of_json(found: dict[str, Any]) -> Column:
    """Convert the result of :func:`to_json` back."""
    return Column(found["name"], found["kind"], [of_json(part) for part in found.get("parts", [])])


def _path(number: int) -> str:
    return f"{_HOME}/{number:09d}.json"
