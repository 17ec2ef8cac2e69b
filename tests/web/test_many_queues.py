"""5,000 queues: the document stays small, the broker sorts and filters, and only visible rows are requested."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, Request, expect

from .conftest import LogIn, Watch

COUNT = 5000
ROWS_MAX = 60  # rows in the document, at 900 pixels


@pytest.fixture(scope="module", autouse=True)
def many(api: httpx.Client) -> Iterator[None]:
    queues = [
        {"name": f"many.{number:04d}", "vhost": "many", "durable": True, "arguments": {}} for number in range(COUNT)
    ]
    vhost = {"vhosts": [{"name": "many"}], "permissions": [
        {"user": "guest", "vhost": "many", "configure": ".*", "write": ".*", "read": ".*"}
    ]}  # fmt: skip
    assert api.post("definitions", json=vhost | {"queues": queues}).status_code == 204
    body = {"routing_key": "many.4321", "payload": "x", "payload_encoding": "string", "properties": {}}
    assert api.post("exchanges/many/amq.default/publish", json=body).json() == {"routed": True}
    yield
    api.delete("vhosts/many")


@pytest.fixture
def table(log_in: LogIn) -> Page:
    page = log_in("queues")
    page.get_by_label("Virtual host", exact=True).select_option("many")
    expect(page.locator(".count")).to_have_text("5\u202f000")
    expect(page.get_by_role("row").filter(has_text="many.0000")).to_be_visible()
    return page


def asked(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}


def test_scrolling(table: Page, watch: Watch) -> None:
    table.get_by_role("button", name="Pause").click()  # from now on, only scrolling causes requests
    before = len(watch.asked("/api/queues/many"))
    grid = table.get_by_role("grid", name="Queues")
    expect(grid).to_have_attribute("aria-rowcount", str(COUNT + 1))
    assert table.get_by_role("row").count() <= ROWS_MAX
    scroller = table.locator(".table-scroll")
    for part in (0.25, 0.5, 0.75):
        scroller.evaluate(f"element => element.scrollTop = element.scrollHeight * {part}")
        expect(table.get_by_role("row").filter(has_text=f"many.{int(COUNT * part) + 4}")).to_be_visible()
        assert table.get_by_role("row").count() <= ROWS_MAX
    grid.focus()
    table.keyboard.press("End")
    expect(table.get_by_role("row", selected=True)).to_contain_text("many.4999")
    table.keyboard.press("PageUp")
    table.keyboard.press("Home")
    expect(table.get_by_role("row", selected=True)).to_contain_text("many.0000")
    requests = [asked(request) for request in watch.asked("/api/queues/many")]
    assert all(int(each["page_size"]) <= 100 for each in requests)
    assert len(requests) - before <= 2 * 6  # two pages at most for each position


def test_the_filter_and_the_order_are_the_brokers(table: Page, watch: Watch) -> None:
    table.get_by_label("Filter Queues").fill("43")
    expect(table.locator(".count")).to_have_text("199 of 5\u202f000")
    table.get_by_label("Filter Queues").fill("^many\\.43[0-4]1$")
    table.get_by_role("checkbox", name="Regular expression").check()
    expect(table.locator(".count")).to_have_text("5 of 5\u202f000")
    table.get_by_role("button", name="Ready").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("many.4321")
    expect(table.get_by_role("columnheader", name="Ready")).to_have_attribute("aria-sort", "descending")
    last = asked(watch.asked("/api/queues/many")[-1])
    assert (last["sort"], last["sort_reverse"], last["use_regex"]) == ("messages_ready", "true", "true")
    table.reload()
    expect(table.get_by_role("row").nth(1)).to_contain_text("many.4321")
    expect(table.get_by_label("Filter Queues")).to_have_value("^many\\.43[0-4]1$")


def test_a_filter_that_is_no_expression(table: Page, watch: Watch) -> None:
    watch.allowed += ["400 (Bad Request)"]
    table.get_by_role("checkbox", name="Regular expression").check()
    table.get_by_label("Filter Queues").fill("(")
    expect(table.get_by_role("alert")).to_contain_text("The broker reports")
    table.get_by_label("Filter Queues").fill("(0001)")
    expect(table.locator(".count")).to_have_text("1 of 5\u202f000")
    expect(table.get_by_role("alert")).to_be_hidden()


def test_a_list_that_becomes_shorter(table: Page, api: httpx.Client, watch: Watch) -> None:
    """A reader at the end of a list that becomes shorter sees the rows that are left."""
    watch.allowed += ["400 (Bad Request)"]
    scroller = table.locator(".table-scroll")
    scroller.evaluate("element => element.scrollTop = element.scrollHeight")
    expect(table.get_by_role("row").filter(has_text="many.4999")).to_be_visible()
    api.delete("vhosts/many")
    assert api.put("vhosts/many").status_code == 201
    api.put("queues/many/left", json={})
    table.keyboard.press("r")
    expect(table.get_by_role("row").filter(has_text="left")).to_be_visible()
    expect(table.get_by_role("row")).to_have_count(2)
