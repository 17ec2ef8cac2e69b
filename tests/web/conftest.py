"""One broker with its web page and one Chromium for all tests; each test has a browser context of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright
from tests.no_tls import NO_TLS
from tests.waiting import until

from leveret.testing.processes import LeveretProcess

WIDTH, HEIGHT = 1400, 900
TIMEOUT_MS = 60_000
LogIn = Callable[..., Page]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for each file: while Playwright is open, no other test of the process can have an event loop."""
    expect.set_options(timeout=TIMEOUT_MS)
    # Chromium's sandbox does not start as root, the user of tests in containers
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        yield browser
        browser.close()


def serving(process: LeveretProcess) -> LeveretProcess:
    """Return the process once its HTTP API answers."""

    def probe() -> bool:
        try:
            return httpx.get(process.admin_url, verify=NO_TLS).status_code == 200
        except httpx.HTTPError:
            return False

    until(probe, lambda: f"no answer at {process.admin_url}: {process.output}")
    return process


@pytest.fixture(scope="session")
def site() -> Iterator[LeveretProcess]:
    """A broker with a web page at its admin_url. Tests share it and use names of their own."""
    with LeveretProcess(admin=True) as process:
        yield serving(process)


@pytest.fixture(scope="session")
def api(site: LeveretProcess) -> Iterator[httpx.Client]:
    """The HTTP API as guest: api.put("queues/%2F/q", json={})."""
    with httpx.Client(base_url=f"{site.admin_url}/api/", auth=("guest", "guest"), timeout=60, verify=NO_TLS) as client:
        yield client


@pytest.fixture(scope="session")
def users(api: httpx.Client) -> dict[str, str]:
    """Tag -> a user with that tag; the password is "secret"."""
    names = {tag: f"web-{tag}" for tag in ("management", "policymaker", "monitoring")}
    for tag, name in names.items():
        assert api.put(f"users/{name}", json={"password": "secret", "tags": tag}).status_code == 201
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        assert api.put(f"permissions/%2F/{name}", json=everything).status_code == 201
    return names


class Watch:
    """Records what a page must not do: log errors to the console, fail in a script, or send requests to another
    host."""

    def __init__(self, page: Page, url: str) -> None:
        self.allowed: list[str] = []  # texts of errors that the test provokes, such as of refused requests
        self._host = urlsplit(url).netloc
        self._complaints: list[str] = []
        self.requests: list[Request] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self._complaints.append(f"script: {error}"))
        page.on("request", self._see)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(f"console: {message.text}")

    def _see(self, request: Request) -> None:
        self.requests.append(request)
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self._host:
            self._complaints.append(f"asked another host: {request.url}")

    @property
    def complaints(self) -> list[str]:
        """Return all errors that the test does not allow."""
        return [each for each in self._complaints if not any(text in each for text in self.allowed)]

    def asked(self, part: str) -> list[Request]:
        """Return the requests with this in their URL."""
        return [request for request in self.requests if part in request.url]


@pytest.fixture
def blank(chromium: Browser) -> Iterator[Page]:
    """An empty page."""
    context = chromium.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en")
    context.set_default_timeout(TIMEOUT_MS)
    yield context.new_page()
    context.close()


@pytest.fixture
def watch(blank: Page, site: LeveretProcess) -> Iterator[Watch]:
    """The record of the test's page; checked when the test ends."""
    found = Watch(blank, site.admin_url)
    yield found
    assert found.complaints == []


@pytest.fixture
def page(blank: Page, watch: Watch) -> Page:
    """A recorded page before the login."""
    return blank


@pytest.fixture
def log_in(page: Page, site: LeveretProcess) -> LogIn:
    """log_in("queues", user=…, password=…) returns the page at this path after the login."""

    def enter(address: str = "overview", user: str = "guest", password: str = "guest") -> Page:
        page.goto(f"{site.admin_url}/#/{address}")
        page.get_by_label("User").fill(user)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("nav")).to_be_attached()
        return page

    return enter
