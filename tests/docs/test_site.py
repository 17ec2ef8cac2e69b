"""The documentation's site: it builds with warnings as errors, and the generated reference is complete."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.admin.paths.routes import API
from leveret.cli.ctl.tables import CTL
from leveret.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
MOVED: dict[str, str] = runpy.run_path(str(ROOT / "tools/site/moved.py"))["MOVED"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--site-dir", str(directory)],
        cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return directory


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert not [page for page in pages if not (site / page).exists()]


def test_old_addresses_lead_to_the_new_ones(site: Path) -> None:
    assert len(MOVED) > 50
    for old, new in MOVED.items():
        assert (ROOT / "docs" / f"{new}.md").exists()
        assert (site / f"{new}.html").exists()
        text = (site / f"{old}.html").read_text()
        assert f'content="0; url={new}.html"' in text
        assert f'location.replace("{new}.html" + location.hash)' in text


def test_no_page_names_an_old_one() -> None:
    """No source names an old page either."""
    files = [
        path
        for place in ("docs", "src", "tests", "tools", "bench", "deploy", "examples")
        for path in (ROOT / place).rglob("*")
        if path.suffix in (".md", ".py", ".js", ".toml", ".yml", ".service")
    ]
    old = re.compile(rf"\b(?:{'|'.join(name for name in MOVED if name.isupper())})\.md\b")
    files += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile")]
    texts = {path: path.read_text() for path in files}
    assert {str(path): old.findall(text) for path, text in texts.items() if old.search(text)} == {}


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
