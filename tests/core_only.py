"""A pytest plugin for the interpreted pass, which collects only test files that drive the core.

    LEVERET_CORE=interpreted python -m pytest -p tests.core_only tests/unit tests/fuzz tests/kit tests/conformance

Outside the core (the modules that mypyc compiles) both forms run the same Python, and a client cannot tell them apart,
so those tests run only once, on the compiled core. What can differ is the core's own code: integers that wrap or do
not, type checks, attributes without a value, imports and annotations that are evaluated only at run time. A test file
drives the core if it, or a helper below tests/ that it imports, names one of these modules. The files in ALWAYS are
collected as well: they drive the core through a server, or name a module in a string.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from setup import core_sources, module_of

TOP = Path(__file__).parents[1]
ALWAYS = frozenset({
    "tests/conformance/test_confirm_table.py", "tests/conformance/test_pika.py", "tests/conformance/test_violations.py",
    "tests/fuzz/test_corpus.py", "tests/kit/test_broker.py", "tests/unit/test_core_kind.py",
})  # fmt: skip

NEVER = frozenset({
    "tests/kit/test_chaos.py", "tests/unit/test_publishers_crashes.py", "tests/unit/test_schedule_crashes.py",
    "tests/unit/test_stages_crashes.py",
})  # fmt: skip
"""These files would take a quarter of the pass.

Three of them crash at every disk operation, and run the same code up to that point as test_publishers.py,
test_schedule.py and test_stages.py; the fourth, chaos, moves hundreds of megabytes.
"""

ONCE = frozenset({
    "tests/unit/test_ack_timeout.py::test_what_is_noted_has_a_limit",
    "tests/unit/test_long_lookups.py::test_no_record_names_more_queues_than_its_number_has_room_for",
    "tests/unit/test_stages.py::test_no_record_of_a_release_names_more_queues_than_its_number_has_room_for",
    "tests/unit/test_stages.py::test_stages_are_not_without_number",
    "tests/unit/test_transactions.py::test_a_transaction_settles_no_more_than_a_turn_may_handle",
})  # fmt: skip
"""These tests reach limits of tens of thousands, and would take a sixth of the pass.

The code in question, with smaller numbers, is driven by other tests of their files, and the numbers that could be too
large for something are those of the compiled core.
"""


@cache
def core_modules() -> frozenset[str]:
    """Return the dotted names of the modules that mypyc compiles."""
    return frozenset(map(module_of, core_sources()))


def imported(path: Path) -> set[str]:
    """Return the modules that a file may import by its import statements, and the names that it imports from them."""
    found: set[str] = set()
    package = path.relative_to(TOP).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: -node.level] if node.level else ()
            module = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{each.name}" for each in node.names)}
    return found


@cache
def drives_core(path: Path) -> bool:
    """Return whether a test file imports modules of the core, directly or through helpers."""
    todo, seen = [path], {path}
    while todo:
        names = imported(todo.pop())
        if not names.isdisjoint(core_modules()):
            return True
        helpers = {TOP / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")}
        todo += [helper for helper in helpers - seen if helper.exists()]
        seen |= helpers
    return False


def is_taken(path: Path) -> bool:
    name = str(path.relative_to(TOP))
    return name not in NEVER and (name in ALWAYS or drives_core(path))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Exclude a file before it is imported."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and not is_taken(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Exclude the tests in ONCE."""
    excluded = [item for item in items if item.nodeid.partition("[")[0] in ONCE]
    config.hook.pytest_deselected(items=excluded)
    items[:] = [item for item in items if item not in excluded]


def pytest_report_header() -> str:
    return f"only tests that drive the core: {len(core_modules())} modules"
