"""A plugin of pytest for the interpreted pass: of the files it is given, only those whose tests drive the core.

    LEVERET_CORE=interpreted python -m pytest -p tests.core_only tests/unit tests/fuzz tests/kit tests/conformance

Outside the core (the modules that mypyc compiles) both forms run the same Python, and from outside nobody can tell them
apart, so those tests run once, on the compiled core. What can differ is the core's own code: integers that wrap or do
not, checks of types, attributes without a value, imports and annotations that are looked at only when they run. A test
drives it when its file, or a helper below tests/ that it imports, names one of these modules; of the others, ALWAYS are
taken along, which do it through a server or by a name in a text.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from setup import core_sources, module_of

TOP = Path(__file__).parents[1]
ALWAYS = frozenset({
    "tests/conformance/test_confirm_table.py", "tests/conformance/test_pika.py", "tests/conformance/test_violations.py",
    "tests/fuzz/test_corpus.py", "tests/kit/test_broker.py", "tests/unit/test_core_kind.py",
})  # fmt: skip

NEVER = frozenset({
    "tests/kit/test_chaos.py", "tests/unit/test_schedule_crashes.py", "tests/unit/test_stages_crashes.py",
})  # fmt: skip
"""A quarter of the pass: two crash at every disk operation, and the code on the way there is that of test_schedule.py
and test_stages.py; chaos throws hundreds of megabytes about."""


@cache
def core_modules() -> frozenset[str]:
    """The dotted names of the modules that mypyc compiles."""
    return frozenset(map(module_of, core_sources()))


def imported(path: Path) -> set[str]:
    """The modules that a file may import by its import statements, and the names that it takes from them."""
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
    """Whether a file of tests names the core, itself or through helpers."""
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
    """Leaves a file out before it is imported."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and not is_taken(collection_path) else None


def pytest_report_header() -> str:
    return f"only tests that drive the core: {len(core_modules())} modules"
