"""MkDocs hooks: generate the reference pages from the code's own tables while the site is built.

They are not stored anywhere else, so they cannot differ from the code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

import commands_page  # noqa: E402
import errors_page  # noqa: E402
import http_page  # noqa: E402
import python_page  # noqa: E402
from moved import MOVED, redirect  # noqa: E402

PAGES = {
    "reference/commands.md": commands_page.text,
    "reference/http.md": http_page.text,
    "reference/errors.md": errors_page.text,
    "reference/python.md": python_page.text,
}


BESIDE = ("examples", "deploy")
"""Directories outside docs/ that pages link to."""


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and the files that pages link to."""
    for uri, text in PAGES.items():
        files.append(File.generated(config, uri, content=text()))
    for name in BESIDE:
        for path in sorted((ROOT / name).rglob("*")):
            if path.is_file():
                uri = str(path.relative_to(ROOT))
                files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links that lead out of docs/ to the copies in the site."""
    up = "../" * page.file.src_uri.count("/")
    for name in BESIDE:
        markdown = markdown.replace(f"]({up}../{name}/", f"]({up}{name}/")
    return markdown


def on_post_build(config: Any) -> None:
    """Write the pages that redirect old addresses to new ones."""
    for old, new in MOVED.items():
        (Path(config.site_dir) / f"{old}.html").write_text(redirect(new), encoding="utf-8")
