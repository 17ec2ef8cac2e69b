"""Imports the programs of bench/, which are in no package and import each other as scripts do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

BENCH = Path(__file__).parents[2] / "bench"


@contextmanager
def imported(*names: str) -> Iterator[list[ModuleType]]:
    """Import these modules; on exit, remove them and what they imported from bench/ from sys.modules."""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCH))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(BENCH))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCH)):
                del sys.modules[name]
