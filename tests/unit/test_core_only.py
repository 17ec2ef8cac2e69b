"""The interpreted pass runs the tests that drive the core, whether directly or through helpers."""

from __future__ import annotations

import pytest
from tests.core_only import ALWAYS, NEVER, ONCE, TOP, is_taken


@pytest.mark.parametrize(("name", "expected"), [
    ("unit/test_runs.py", True),  # names modules of the core
    ("unit/test_stale_bindings.py", True),
    ("sim/test_delays.py", True),  # through helpers
    ("fuzz/test_corpus.py", True),  # always
    ("unit/test_stages_crashes.py", False),  # never
    ("unit/test_store_journal.py", False),
])  # fmt: skip
def test_which_files_are_taken(name: str, expected: bool) -> None:
    assert is_taken(TOP / "tests" / name) == expected


def test_those_that_are_named_are_there() -> None:
    assert [name for name in ALWAYS | NEVER if not (TOP / name).exists()] == []
    for name in ONCE:
        file, _, function = name.partition("::")
        assert is_taken(TOP / file)
        assert f"def {function}(" in (TOP / file).read_text()
