"""The programs of bench/ as modules: they import each other as scripts do, and are in no package."""

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
    """These modules; afterwards nobody finds them, or what they imported from there, under these names."""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCH))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(BENCH))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCH)):
                del sys.modules[name]
