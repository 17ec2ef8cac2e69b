"""The run with the compiled core must really use it, and the interpreted run must be interpreted."""

import importlib.util
import os
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import leveret

ROOMS = ("wire", "session", "broker")
HOT = ("rewriting.py", "transfer.py", "window.py")


def core_modules() -> list[str]:
    """Return the dotted names of all modules of the core and of the links' hot path, from this repository's sources."""
    source = Path(__file__).parents[2] / "src" / "leveret"
    found = [path for room in ROOMS for path in sorted((source / room).rglob("[!_]*.py"))]
    found += [source / "federation" / name for name in HOT]
    return [".".join(path.relative_to(source.parent).with_suffix("").parts) for path in found]


def test_the_core_is_the_expected_one() -> None:
    wanted = os.environ.get("LEVERET_CORE", "best")
    assert wanted in ("best", leveret.core())


def is_compiled(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    return isinstance(spec.loader, ExtensionFileLoader)


def test_every_module_of_the_core_has_the_same_form() -> None:
    names = core_modules()
    assert len(names) > 100
    assert [name for name in names if is_compiled(name) != (leveret.core() == "compiled")] == []
