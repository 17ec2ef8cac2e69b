"""Compiles the core (wire/, session/, broker/) and the hot path of links with mypyc where that is possible; else the
wheel is pure Python.

LEVERET_PURE=1 asks for the pure one. Everything else about the package stands in pyproject.toml.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools import setup

ROOMS = ("wire", "session", "broker")
SINGLE = tuple(f"src/leveret/federation/{name}.py" for name in ("rewriting", "transfer", "window"))


def core_sources() -> list[str]:
    """The modules to compile, relative to this file. A package's __init__ stays Python: it only re-exports."""
    package = Path("src/leveret")
    found = [path for room in ROOMS for path in sorted((package / room).rglob("*.py"))]
    return [*(str(path) for path in found if path.name != "__init__.py"), *SINGLE]


def obstacle() -> str | None:
    """Why the core cannot be compiled here, or None."""
    if os.environ.get("LEVERET_PURE"):
        return "LEVERET_PURE is set"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "no Python.h (the headers of this Python)"
    try:
        import mypyc.build  # noqa: F401
    except ImportError:
        return "no mypyc"
    return None


def extensions() -> list[Any]:
    """The extension modules: one group, so that calls between the rooms are plain C calls."""
    reason = obstacle()
    if reason is not None:
        print(f"leveret: the core stays interpreted: {reason}", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    return mypycify(core_sources(), opt_level="3", debug_level="0", group_name="leveret")


def building() -> bool:
    """Metadata needs no compilation; nor does an editable installation, which would put binaries among the sources."""
    return any(command.startswith(("build", "bdist", "install")) for command in sys.argv[1:])


if __name__ == "__main__":
    setup(ext_modules=extensions() if building() else [])
