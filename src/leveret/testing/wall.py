"""A wall clock of one process that can be set while the process runs.

    wall = WallClock(work_dir)
    process.extra_environment.update(wall.environment())
    wall.set_ahead(3600)  # the process's clock is one hour ahead from now on

Needs Linux and a C compiler.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("wall.c")
_OFFSET: Final = struct.Struct("=q")


class WallClock:
    """A settable clock; it shows the real time until it is set."""

    def __init__(self, work: Path) -> None:
        """Build the library in `work`, an existing directory. Raises FileNotFoundError without a C compiler."""
        self._library = work / "wall.so"
        self._offset = work / "wall.offset"
        self.set_ahead(0)
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("a C compiler (cc) is needed to build the library that sets the clock")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", self._library, _SOURCE], check=True)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that the process needs."""
        return {"LD_PRELOAD": str(self._library), "WALL_OFFSET": str(self._offset)}

    def set_ahead(self, seconds: float) -> None:
        """Set the clock this many seconds ahead of the real time, or behind it if negative."""
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:
            file.write(_OFFSET.pack(round(seconds * 1e6)))
