"""What the web page costs: octets of a first and a second visit, 5,000 queues in a browser, and the cost of a refresh.

    .venv/bin/python bench/web_page.py
    .venv/bin/python bench/web_page.py --screenshots docs/assets

The second command takes the README's screenshots instead, of a broker under load.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pika
from playwright.sync_api import Browser, Page, Response, sync_playwright

from leveret.testing.processes import LeveretProcess

QUEUES = 5000
REFRESHES = 20
LOAD_S = 62.0  # before each screenshot: a chart shows a minute
SIZE = {"width": 1400, "height": 900}
CLOCK_HZ = os.sysconf("SC_CLK_TCK")
NAMES = (
    "billing", "checkout", "emails", "exports", "inventory", "invoices", "orders", "payments", "pricing", "refunds",
    "search.index", "sensors", "shipping", "sms", "thumbnails", "webhooks",
)  # fmt: skip


def processor_s(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_HZ


def admin_pid(broker: LeveretProcess) -> int:
    """Return the process id of the HTTP API."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"leveret.admin" in words and parent == broker.pid:
                return int(entry.name)
    raise LookupError("there is no process of the HTTP API")


def enter(page: Page, address: str) -> None:
    """Log in as guest on the page."""
    page.goto(address)
    page.get_by_label("User").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Log in").click()


class Traffic:
    """Counts the octets of answers, raw and as transferred."""

    def __init__(self, page: Page) -> None:
        self.answers: list[Response] = []
        page.on("response", self._see)

    def _see(self, answer: Response) -> None:
        self.answers.append(answer)

    def told(self, what: str) -> str:
        own = [each for each in self.answers if "/api/" not in each.url and each.status == 200]
        raw = sum(len(each.body()) for each in own)
        sent = sum(max(each.request.sizes()["responseBodySize"], 0) for each in own)  # -1: from the cache
        return f"{what}: {len(own)} files, {raw:,} octets, {sent:,} transferred"


def figures(browser: Browser, broker: LeveretProcess, api: httpx.Client) -> None:
    queues = [{"name": f"q.{number:04d}", "vhost": "/", "durable": True, "arguments": {}} for number in range(QUEUES)]
    api.post("definitions", json={"queues": queues}).raise_for_status()
    context = browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    first = Traffic(page)
    enter(page, broker.admin_url)
    page.locator(".chart canvas").nth(4).wait_for()
    print(first.told("first visit, until the overview is drawn"))
    second = Traffic(page)
    page.reload()
    page.locator(".chart canvas").nth(4).wait_for()
    print(second.told("second visit, from the browser's cache"))
    print(f"queues page with {QUEUES:,} queues, milliseconds in three tries:")
    for what, run in (("first rows seen after", rows_ms), ("filter answered after", filter_ms)):
        print(f"  {what}: {', '.join(f'{run(page, broker):.0f}' for _ in range(3))}")
    refreshes(page, broker)
    context.close()


def rows_ms(page: Page, broker: LeveretProcess) -> float:
    """Measure from the request for the page, in a logged-in tab, until rows can be read."""
    page.goto("about:blank")
    began_s = time.perf_counter()
    page.goto(f"{broker.admin_url}/#/queues", wait_until="commit")
    page.get_by_role("row").filter(has_text="q.0000").wait_for()
    return (time.perf_counter() - began_s) * 1000


def filter_ms(page: Page, broker: LeveretProcess) -> float:
    """Measure from typing to the filtered rows, including the delay after the last key."""
    page.get_by_label("Filter Queues").fill("")
    page.get_by_role("row").filter(has_text="q.0000").wait_for()
    began_s = time.perf_counter()
    page.get_by_label("Filter Queues").fill("4321")
    page.get_by_role("row").filter(has_text="q.4321").wait_for()
    return (time.perf_counter() - began_s) * 1000


def refreshes(page: Page, broker: LeveretProcess) -> None:
    """Print processor time and requests of one refresh, for each of two pages that refresh as often as possible."""
    pid = admin_pid(broker)
    seen: list[str] = []
    page.on("requestfinished", lambda request: seen.append(request.url))
    for address, last in (("overview", "/api/nodes"), ("queues", "/api/queues")):
        page.goto(f"{broker.admin_url}/#/{address}")
        page.wait_for_load_state("networkidle")
        page.keyboard.press("p")  # pauses the page: only the refreshes requested here count
        seen.clear()
        admin_s, broker_s = processor_s(pid), processor_s(broker.pid)
        for _ in range(REFRESHES):
            with page.expect_event("requestfinished", lambda request, last=last: last in request.url):
                page.keyboard.press("r")
        admin_ms = (processor_s(pid) - admin_s) / REFRESHES * 1000
        broker_ms = (processor_s(broker.pid) - broker_s) / REFRESHES * 1000
        page.keyboard.press("p")
        print(f"a refresh of {address}: {len(seen) / REFRESHES:.1f} requests, processor time of the HTTP API"
              f" {admin_ms:.1f} ms, of the broker {broker_ms:.1f} ms")  # fmt: skip


@contextmanager
def load(broker: LeveretProcess) -> Iterator[None]:
    """Run publishers and consumers of a shop, in which consumers sometimes lag behind."""
    stop = threading.Event()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.exchange_declare("events", "topic", durable=True)
    for name in NAMES:
        channel.queue_declare(
            name, durable=True, arguments={"x-queue-type": "quorum"} if name in ("orders", "payments") else {}
        )
        channel.queue_bind(name, "events", f"{name}.#")
    connection.close()
    threads = [threading.Thread(target=_publish, args=(broker.url, stop, seed), daemon=True) for seed in range(2)]
    threads += [
        threading.Thread(target=_consume, args=(broker.url, stop, names), daemon=True)
        for names in (NAMES[::2], NAMES[1::2])
    ]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


def _named(url: str, name: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(url)
    parameters.client_properties = {"connection_name": name}
    return pika.BlockingConnection(parameters)


def _publish(url: str, stop: threading.Event, seed: int) -> None:
    chance = random.Random(seed)
    with _named(url, f"shop-{seed}") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        while not stop.wait(0.02):
            for _ in range(chance.randrange(4, 24)):
                name = NAMES[min(int(chance.expovariate(0.25)), len(NAMES) - 1)]
                channel.basic_publish(
                    "events", f"{name}.new", b"{}" * chance.randrange(20, 400), pika.BasicProperties(delivery_mode=2)
                )


def _consume(url: str, stop: threading.Event, names: tuple[str, ...]) -> None:
    with _named(url, f"worker-{names[0]}") as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=3)  # of each consumer; the busiest queues grow
        for name in names:
            channel.basic_consume(
                name, lambda channel, method, properties, body: channel.basic_ack(method.delivery_tag)
            )
        while not stop.is_set():
            connection.process_data_events(time_limit=0.05)
            stop.wait(0.09)


def screenshots(browser: Browser, broker: LeveretProcess, folder: Path) -> None:
    with load(broker):
        for scheme, address, name in (
            ("light", "overview", "web-overview.png"),
            ("dark", "queues?sort=messages_ready&desc=1", "web-queues-dark.png"),
        ):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
            enter(page, f"{broker.admin_url}/#/{address}")
            page.get_by_label("Refresh").select_option("1")
            page.wait_for_timeout(LOAD_S * 1000)
            page.screenshot(path=folder / name)
            print(f"{folder / name}: {(folder / name).stat().st_size:,} octets")
            page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--screenshots", type=Path, metavar="DIRECTORY")
    options = parser.parse_args()
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with LeveretProcess(admin=True) as broker, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        with httpx.Client(base_url=f"{broker.admin_url}/api/", auth=("guest", "guest"), timeout=60) as api:
            if options.screenshots:
                screenshots(browser, broker, options.screenshots)
            else:
                figures(browser, broker, api)
        browser.close()


if __name__ == "__main__":
    main()
