"""docs/guides/simulation.md: each of its programs runs, and its tests pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "simulation.md"


def test_every_program_of_the_guide() -> None:
    """In order, since they build upon each other."""
    programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    assert len(programs) == 6
    names: dict[str, Any] = {}
    for program in programs:
        exec(compile(program, str(GUIDE), "exec"), names)
    for seed in range(20):
        names["test_flights_with_other_seeds"](seed)
    names["replay"](1)
