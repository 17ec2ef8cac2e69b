"""Every command and program of the tutorials, as they stand."""

from pathlib import Path

import pytest

from tests.docs import tutorial

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(page.name for page in TUTORIALS.glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_does_what_it_says(page: str, tmp_path: Path) -> None:
    tutorial.run(TUTORIALS / page, tmp_path)


def test_what_is_printed_otherwise_is_noticed() -> None:
    step = tutorial.Step("echo", "one\n…\nlast …\n")
    tutorial.matches(Path("x.md"), step, "one\ntwo\nthree\nlast 3\n", "")
    with pytest.raises(AssertionError, match=r"x\.md"):
        tutorial.matches(Path("x.md"), step, "one\ntwo\nfirst 3\n", "")
