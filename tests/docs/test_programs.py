"""Programs on pages that no test runs: they are at least valid Python, and their imports exist."""

import ast
import importlib
from pathlib import Path

from tests.docs.commands import PAGES, ROOT
from tests.docs.run_by import RUN_BY, counts, programs
from tests.each import check_each


def check_programs(page: Path) -> None:
    for text in programs(page):
        tree = compile(text, str(page), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leveret"):
                module = importlib.import_module(node.module or "")
                assert not [alias.name for alias in node.names if not hasattr(module, alias.name)]


def test_programs_import_what_there_is() -> None:
    check_each([page for page in PAGES if programs(page)], check_programs, lambda page: page.stem)


def test_who_runs_a_page_names_it() -> None:
    for page, (test, _) in RUN_BY.items():
        assert (ROOT / page).exists()
        name = Path(page).name
        text = (ROOT / test).read_text()
        assert name in text or "tutorials" in page, f"{test} does not mention {name}"


def test_most_of_what_is_shown_is_run() -> None:
    for what, run, count in counts():
        print(f"{what}: {run} of {count} are run by tests")
        assert run > 0
