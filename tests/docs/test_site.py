"""The documentation as a site: it is built with warnings as errors, and the generated reference is whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.admin.paths.routes import API
from leveret.cli.ctl.tables import CTL
from leveret.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [str(Path(sys.executable).with_name("mkdocs")), "build", "--quiet", "--strict", "--site-dir", str(directory)],
        cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return directory


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert not [page for page in pages if not (site / page).exists()]


def test_the_reference_has_all_commands(site: Path) -> None:
    text = (site / "reference" / "commands.html").read_text()
    assert not [name for name in COMMANDS if f"leveret {name}<" not in text]
    assert not [name for name in CTL if name not in text]


def test_the_reference_has_all_paths(site: Path) -> None:
    text = (site / "reference" / "http.html").read_text()
    assert not [route.path for route in API if f"/api{route.path}<" not in text]


def test_the_reference_has_errors_where_they_are_made(site: Path) -> None:
    text = (site / "reference" / "errors.html").read_text()
    assert "no exchange '{name}' in vhost '{name}'" in text.replace("&#x27;", "'").replace("&#39;", "'")
    assert "fast reply consumer does not exist" in text
    assert "530 NOT_ALLOWED" in text


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        for mark in ('<script src="http', '<link rel="stylesheet" href="http', "fonts.googleapis", "@import url(http"):
            assert mark not in text, f"{page.name}: {mark}"
