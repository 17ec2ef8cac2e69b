"""Imports between the rooms (top-level packages of leveret) run in one direction only."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# room -> the rooms that it may import besides itself; None: all of them
ROOMS: dict[str, frozenset[str] | None] = {
    "wire": frozenset(),
    "session": frozenset({"wire"}),
    "broker": frozenset({"wire", "session"}),
    "store": frozenset(),
    "lake": frozenset({"wire", "broker", "store", "client"}),
    "net": frozenset({"wire", "session", "broker", "store", "client", "federation"}),
    "client": frozenset({"wire"}),
    "delay": frozenset({"wire", "client"}),
    "endpoint": frozenset({"wire", "client", "delay"}),
    "frameworks": frozenset({"wire", "client", "delay"}),
    "federation": frozenset({"wire", "session", "client", "broker"}),
    "otel": frozenset({"wire", "client"}),
    "spark": frozenset({"wire", "client", "delay"}),
    "pipelines": frozenset({"wire", "client", "delay", "spark"}),
    "control": frozenset({"wire", "session", "broker", "net", "federation"}),
    "admin": None,
    "demo": None,
    "cli": None,
    "testing": None,
}
# the core is deterministic: it is given time, randomness and input
CORE = ("wire", "session", "broker")
FORBIDDEN_IN_CORE = frozenset(
    {"asyncio", "os", "random", "secrets", "select", "socket", "ssl", "subprocess", "threading", "time", "uuid"}
)


def imported(path: Path, src: Path) -> Iterator[tuple[str, int]]:
    """Yield (module, line) of every import in the file, at any level."""
    package = path.relative_to(src).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*start, *([node.module] if node.module else [])])
            yield module, node.lineno
            for alias in node.names:  # `from leveret import wire` names a room, too
                yield f"{module}.{alias.name}", node.lineno


def sources() -> list[Path]:
    return sorted((SRC / "leveret").rglob("*.py"))


def room_of(module: str) -> str | None:
    """Return the room of a dotted name, or None for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "leveret" and len(parts) > 1 and parts[1] in ROOMS else None


def forbidden_imports(path: Path, src: Path = SRC) -> list[str]:
    """Return the file's forbidden imports, one line each."""
    room = path.relative_to(src / "leveret").parts[0]
    allowed = ROOMS.get(room)
    found = []
    for module, line in imported(path, src):
        other = room_of(module)
        if allowed is not None and other is not None and other != room and other not in allowed:
            found.append(f"{path.name}:{line}: {room}/ imports {other}/")
        if room in CORE and module.split(".")[0] in FORBIDDEN_IN_CORE:
            found.append(f"{path.name}:{line}: {room}/ imports {module}")
    return found


def clock_readings(path: Path) -> list[str]:
    """Return the places where the file reads the current time through datetime; datetime values are allowed."""
    return [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "utcnow", "today"}
        and isinstance(node.value, ast.Name)
        and node.value.id in {"datetime", "date"}
    ]


@pytest.mark.parametrize("room", CORE)
def test_the_core_has_no_clock(room: str) -> None:
    assert [place for path in (SRC / "leveret" / room).rglob("*.py") for place in clock_readings(path)] == []


@pytest.mark.parametrize("room", CORE)
def test_the_core_compiles_without_any_extra(room: str) -> None:
    """Modules of import statements must be installed where the core is compiled."""
    allowed = {"leveret", "librt", "mypy_extensions", *sys.stdlib_module_names}
    found = {
        (module, path.name)
        for path in (SRC / "leveret" / room).rglob("*.py")
        for module, _ in imported(path, SRC)
        if module.split(".")[0] not in allowed
    }
    assert found == set()


def test_imports_run_one_way() -> None:
    found = {str(path.relative_to(SRC)): forbidden_imports(path) for path in sources()}
    assert found
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_every_directory_is_a_room() -> None:
    """A new room must be listed in ROOMS with the rooms that it may import."""
    directories = {path.name for path in (SRC / "leveret").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert directories <= set(ROOMS)


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("wire", "from leveret.broker import queue"),
        ("wire", "from ..session import channel"),
        ("session", "from leveret import net"),
        ("broker", "import time"),
        ("broker", "def late():\n    from asyncio import sleep"),
        ("spark", "import leveret.broker.queues.queue"),
    ],
)
def test_the_check_sees_a_forbidden_import(room: str, line: str, tmp_path: Path) -> None:
    module = tmp_path / "leveret" / room / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(line + "\n")
    assert forbidden_imports(module, tmp_path)
