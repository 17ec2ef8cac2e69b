"""A wall clock for one process that can be set while it runs.

    wall = WallClock(work_dir)
    process.extra_environment.update(wall.environment())
    wall.set_ahead(3600)  # for the process it is an hour later than for all others

Linux, and a C compiler, are needed.
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
    """Shows the real time until it is set."""

    def __init__(self, work: Path) -> None:
        """work: an existing directory, for the library and what it reads. FileNotFoundError without a C compiler."""
        self._library = work / "wall.so"
        self._offset = work / "wall.offset"
        self.set_ahead(0)
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("a C compiler (cc) is needed to build the library that sets the clock")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", self._library, _SOURCE], check=True)

    def environment(self) -> dict[str, str]:
        """What the process needs in its environment."""
        return {"LD_PRELOAD": str(self._library), "WALL_OFFSET": str(self._offset)}

    def set_ahead(self, seconds: float) -> None:
        """From now on the clock is so far ahead of the real one; behind it, where that is negative."""
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:
            file.write(_OFFSET.pack(round(seconds * 1e6)))
