"""Which tests run the examples of a page, and their share of all pages: `python -m tests.docs.run_by` prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.commands import PAGES, ROOT, shown
from tests.docs.test_examples import PAGES as EXAMPLES
from tests.docs.test_examples import examples

PROGRAM = re.compile(r"^ *```python[^\n]*\n(.*?)^ *```$", re.M | re.S)
COMMANDS, PROGRAMS = "commands", "programs"
BOTH = (COMMANDS, PROGRAMS)

# page -> (the test that runs its examples, which of them)
RUN_BY: dict[str, tuple[str, tuple[str, ...]]] = {
    "docs/guides/spark/archive.md": ("tests/spark/pipelines/test_archive_query.py", (COMMANDS,)),
    "docs/guides/spark/audit.md": ("tests/spark/pipelines/test_audit_brokers_query.py", (COMMANDS,)),
    "docs/guides/spark/deadletters.md": ("tests/spark/pipelines/test_deadletters_query.py", (COMMANDS,)),
    "docs/guides/delayed-delivery.md": ("tests/interop/test_delay_guide.py", (PROGRAMS,)),
    "docs/guides/endpoints.md": ("tests/interop/endpoint/test_guide.py", (PROGRAMS,)),
    "docs/guides/spark/enrich.md": ("tests/spark/pipelines/test_enrich_query.py", (COMMANDS,)),
    "docs/guides/exactly-once.md": ("tests/conformance/test_publishers.py", (PROGRAMS,)),
    "docs/guides/federation.md": ("tests/interop/test_federation_guide.py", BOTH),
    "docs/guides/migration.md": ("tests/interop/test_migration_guide.py", (COMMANDS,)),
    "docs/guides/spark/replay.md": ("tests/spark/pipelines/test_replay_query.py", (COMMANDS,)),
    "docs/guides/spark/schedule.md": ("tests/spark/pipelines/test_schedule_query.py", (COMMANDS,)),
    "docs/guides/simulation.md": ("tests/unit/test_simulation_guide.py", (PROGRAMS,)),
    "docs/guides/spark/rpc.md": ("tests/spark/test_guide_query.py", (PROGRAMS,)),
    "docs/guides/spark/source-and-sink.md": ("tests/spark/test_guide_query.py", (PROGRAMS,)),
    "docs/guides/streams-as-tables.md": ("tests/interop/test_tables_guide.py", (PROGRAMS,)),
    "docs/guides/testing.md": ("tests/kit/test_recipes.py", (PROGRAMS,)),
    "docs/guides/legacy-timeouts.md": ("tests/interop/test_timeouts_commands.py", (COMMANDS,)),
    **{
        f"docs/tutorials/{name}.md": ("tests/docs/test_tutorials.py", BOTH)
        for name in ("confirms", "delays", "federation", "pipeline", "replies")
    },
}


def programs(page: Path) -> list[str]:
    """Return the Python programs on a page."""
    return PROGRAM.findall(page.read_text())


def counts() -> Iterator[tuple[str, int, int]]:
    """Yield (kind, how many of them tests run, how many there are)."""
    commands = [command.page for command in shown()]
    found = [str(page.relative_to(ROOT)) for page in PAGES for _ in programs(page)]
    for what, pages in ((COMMANDS, commands), (PROGRAMS, found)):
        run = sum(what in RUN_BY.get(page, ("", ()))[1] for page in pages)
        one_by_one = sum(len(examples(page)) for page in EXAMPLES) if what == COMMANDS else 0
        yield what, run + one_by_one, len(pages)


if __name__ == "__main__":
    for what, run, count in counts():
        print(f"{what} in the documentation: {run} of {count} are run by tests")
