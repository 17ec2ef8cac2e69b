"""Which form of the core (wire, session, broker) this process uses, and why.

The same typed sources run as they are, or compiled by mypyc to extension modules. An installed package has the
extension modules beside the sources. In a checkout, `make compiled` (setup.py) puts them into build/core/ with a list
of the sources they were built from; they are used only while all of these sources are unchanged. The three packages of
the core are compiled together or not at all.

The environment variable LEVERET_CORE chooses: ``best`` (the default) uses the compiled core if it exists; ``compiled``
requires it; ``interpreted`` runs the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["compiled", "interpreted"]

PACKAGE: Final = os.path.dirname(os.path.abspath(__file__))
LIBRARY: Final = "leveret__mypyc"
"""The shared library of all compiled modules."""
ROOMS: Final = ("leveret.wire.", "leveret.session.", "leveret.broker.")
ASKED_FOR: Final = "LEVERET_CORE=interpreted is set"
CHOICES: Final = ("best", "compiled", "interpreted")


class Core(NamedTuple):
    """The core of this process.

    Attributes:
        kind: "compiled" or "interpreted".
        reason: why the core is interpreted, and how to get the compiled one; "" if it is compiled.
        is_refused: whether this core is not the one that LEVERET_CORE asks for.
        modules: the files of modules that are not where Python looks for them, by dotted name.
    """

    kind: Kind
    reason: str
    is_refused: bool
    modules: dict[str, str]

    def __str__(self) -> str:
        return f"{self.kind} core" + (f": {self.reason}" if self.reason else "")


class Finder:
    """Import finder for the compiled modules of a checkout; raises ImportError if LEVERET_CORE asks for another core.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Implement MetaPathFinder. Raises ImportError if the core is refused."""
        if self._core.is_refused and name.startswith(ROOMS):
            raise ImportError(f"LEVERET_CORE={os.environ['LEVERET_CORE']}: {self._core.reason}", name=name)
        file = self._core.modules.get(name)
        return spec_from_file_location(name, file) if file is not None else None


def choose() -> Core:
    """Find the core that LEVERET_CORE asks for, and make it importable."""
    wanted = os.environ.get("LEVERET_CORE") or "best"
    core = _find(wanted)
    if wanted not in CHOICES:
        core = core._replace(reason=f"it must be one of {', '.join(CHOICES)}", is_refused=True)
    # otherwise leveret is in a zip, for Spark's executors
    elif wanted == "compiled" and core.kind != wanted and os.path.isdir(PACKAGE):
        core = core._replace(is_refused=True)
    if core.is_refused or core.modules:
        sys.meta_path.insert(0, Finder(core))
    return core


def _find(wanted: str) -> Core:
    installed = _read(os.path.join(PACKAGE, "core.json"))
    if installed is not None:
        if installed["core"] == "interpreted":
            return Core("interpreted", f"{installed['reason']}. {_remedy(is_installed=True)}", False, {})
        if wanted != "interpreted":
            return Core("compiled", "", False, {})
        return Core("interpreted", ASKED_FOR, False, {name: _source(name) for name in installed["modules"]})
    if wanted == "interpreted":
        return Core("interpreted", ASKED_FOR, False, {})
    return _of_checkout()


def _of_checkout() -> Core:
    suffix = EXTENSION_SUFFIXES[0]
    work = os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "build", "core", suffix.split(".")[1])
    facts = _read(os.path.join(work, "core.json"))
    if facts is None:
        return Core("interpreted", f"it has not been compiled. {_remedy()}", False, {})
    if facts["core"] == "interpreted":
        return Core("interpreted", f"{facts['reason']}. {_remedy()}", False, {})
    for name, state in facts["sources"].items():
        if not _is_unchanged(_source(name), *state):
            return Core("interpreted", f"{name} has changed since it was compiled. {_remedy()}", False, {})
    directory = os.path.join(work, facts["directory"])
    modules = {name: os.path.join(directory, *name.split(".")) + suffix for name in [LIBRARY, *facts["sources"]]}
    return Core("compiled", "", False, modules)


def _source(name: str) -> str:
    return os.path.join(PACKAGE, *name.split(".")[1:]) + ".py"


def _is_unchanged(path: str, size: int, mtime_ns: int, digest: str) -> bool:
    try:
        state = os.stat(path)
        if state.st_size != size:
            return False
        if state.st_mtime_ns == mtime_ns:
            return True
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest() == digest
    except OSError:
        return False


def _remedy(is_installed: bool = False) -> str:
    what = "install leveret again" if is_installed else "run `make compiled`"
    return (
        f"For the compiled core, {what} on a machine with a C compiler and Python's headers (Debian: gcc python3-dev)"
    )


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None
