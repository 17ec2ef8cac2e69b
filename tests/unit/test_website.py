"""The files of the web page over HTTP: which are served, with which headers, and that no others are."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from leveret.admin import website
from leveret.admin.website import SITE, files

from .admin import Browser

FIRST_VIEW_OCTETS = 150_000


@pytest.fixture
def browse() -> Browser:
    return Browser()


def parts() -> list[str]:
    return [path for path in files() if path != "/"]


async def test_the_page_needs_no_login_and_names_its_parts(browse: Browser) -> None:
    answer = await browse("GET", "/", user=None)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    named = re.findall(r'(?:href|src)="(site/[^"]+)"', answer.text)
    assert len(named) >= 5
    for path in named:
        assert (await browse("GET", f"/{path}", user=None)).status_code == 200, path


async def test_nothing_but_its_own_files_runs(browse: Browser) -> None:
    for path in ("/", parts()[0]):
        headers = (await browse("GET", path, user=None)).headers
        rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
        assert rules["require-trusted-types-for"] == "'script'"
        assert rules["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    page = (SITE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|style=|https?://", page)


async def test_the_api_keeps_its_own_rules(browse: Browser) -> None:
    answer = await browse("GET", "/api/whoami")
    assert answer.headers["content-security-policy"].startswith("script-src 'self' 'unsafe-eval'")


async def test_what_is_known_is_not_sent_again(browse: Browser) -> None:
    for path in ("/", parts()[0]):
        answer = await browse("GET", path, user=None)
        for known in (answer.headers["etag"], f'"x", {answer.headers["etag"]}', "*"):
            again = await browse("GET", path, user=None, headers={"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == answer.headers["etag"]
        assert (await browse("GET", path, user=None, headers={"if-none-match": '"x"'})).status_code == 200
    assert (await browse("GET", parts()[0], user=None)).headers["cache-control"] == website.FOR_EVER


async def test_compressed_once_for_who_accepts_it(browse: Browser) -> None:
    path = next(each for each in parts() if each.endswith("main.js"))
    plain = await browse("GET", path, user=None, headers={"accept-encoding": "identity"})
    packed = await browse("GET", path, user=None, headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) == len(plain.content)
    assert packed.content == plain.content  # httpx has decompressed it, once
    assert "accept-encoding" in packed.headers["vary"]


@pytest.mark.parametrize(
    "path",
    [
        "/site/../answers.py", "/site/%2e%2e/answers.py", "/site/..%2fanswers.py", "/site//etc/passwd", "/site/",
        "/site", "/site/{version}/../index.html", "/site/{version}/%2e%2e%2f%2e%2e%2fanswers.py", "/site/{version}/",
        "/site/{version}/js/..%5cmain.js", "/site/{version}/vendor/uplot/LICENSE", "/site/{version}/index.html",
        "/site/{version}/js/main.js/x", "/site/0123456789ab/js/main.js", "/index.html", "/%2F", "/x//",
    ],
)  # fmt: skip
async def test_nothing_else_is_there(browse: Browser, path: str) -> None:
    version = parts()[0].split("/")[2]
    assert (await browse("GET", path.replace("{version}", version), user=None)).status_code == 404


async def test_it_is_only_to_be_read(browse: Browser) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = await browse(method, "/", user=None)
        assert (answer.status_code, answer.headers["allow"]) == (405, "HEAD, GET, OPTIONS")


def test_another_file_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<script src=site/{version}/a.js></script>")
    (tmp_path / "a.js").write_text("1")
    before = files(tmp_path)
    (tmp_path / "a.js").write_text("2")
    after = files(tmp_path)
    assert before.keys() != after.keys()
    assert before["/"].etag != after["/"].etag
    assert b"{version}" not in after["/"].content


def test_a_first_visit_is_small() -> None:
    """The overview loads the page, styles, and all modules that it imports, directly or indirectly."""
    found = {path.split("/", 3)[3]: file for path, file in files().items() if path != "/"}
    wanted, seen = ["js/main.js", "js/pages/overview.js"], set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        for where in re.findall(r'^(?:import .*|}) from "(.*)";$', found[name].content.decode(), re.MULTILINE):
            wanted.append(str((SITE / name).parent.joinpath(where).resolve().relative_to(SITE)))
    seen |= {name for name in found if name.endswith((".css", ".svg"))} | {"vendor/uplot/uPlot.iife.min.js"}
    assert sum(len(found[name].content) for name in seen) < FIRST_VIEW_OCTETS
    assert sum(len(found[name].packed) for name in seen) < FIRST_VIEW_OCTETS / 2.5


def test_the_vendored_library_is_unchanged() -> None:
    vendored = SITE / "vendor" / "uplot"
    digest = hashlib.sha256((vendored / "uPlot.iife.min.js").read_bytes()).hexdigest()
    assert digest == "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
    assert "MIT" in (vendored / "LICENSE").read_text()
    packed = gzip.decompress(next(file for path, file in files().items() if path.endswith("iife.min.js")).packed)
    assert hashlib.sha256(packed).hexdigest() == digest


def test_no_text_becomes_markup() -> None:
    """No module interprets text as HTML or code, or names another host."""
    forbidden = re.compile(r"innerHTML|outerHTML *=|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")
    for path in sorted((SITE / "js").rglob("*.js")):
        text = path.read_text()
        assert not forbidden.search(text), path
        assert not re.search(r"""["'`](https?:)?//(?!www\.w3\.org)[a-z]""", text), path
