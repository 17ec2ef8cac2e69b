"""The page that shows messages without consuming them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess

from .conftest import LogIn, Watch

HOSTILE = "<img src=x onerror=alert(1)>"
COUNT = 120


@pytest.fixture(scope="module")
def queue(api: httpx.Client) -> str:
    """A queue with numbered messages; the first has a hostile body, the second is JSON, the third is not text."""
    api.put("queues/%2F/browsed", json={}).raise_for_status()
    bodies: list[dict[str, Any]] = [
        {"payload": HOSTILE, "properties": {"message_id": "first", "headers": {"h": HOSTILE}}},
        {"payload": json.dumps({"number": 1, "deep": [1, 2]})},
        {"payload": b64encode(bytes(range(256))).decode(), "payload_encoding": "base64"},
        *({"payload": f"body {number}"} for number in range(3, COUNT)),
    ]
    for body in bodies:
        sent = {"routing_key": "browsed", "properties": {}, "payload_encoding": "string"} | body
        assert api.post("exchanges/%2F/amq.default/publish", json=sent).json() == {"routed": True}
    return "browsed"


def test_pages_of_messages(log_in: LogIn, queue: str, api: httpx.Client) -> None:
    page = log_in(f"queues/%2F/{queue}")
    page.get_by_role("link", name="Browse messages").click()
    rows = page.locator(".browsed > li")
    expect(rows).to_have_count(50)
    page.keyboard.press("n")
    expect(rows.first).to_contain_text("50")
    page.keyboard.press("n")
    expect(rows).to_have_count(20)
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.keyboard.press("b")
    expect(rows).to_have_count(50)
    page.get_by_label("First offset").fill("-5")
    page.get_by_role("button", name="Look", exact=True).click()
    expect(rows).to_have_count(5)
    found = api.get(f"queues/%2F/{queue}").json()
    assert (found["messages_ready"], found["message_stats"].get("get", 0)) == (COUNT, 0)


def test_bodies(log_in: LogIn, queue: str) -> None:
    page = log_in(f"browse/%2F/{queue}")
    rows = page.locator(".browsed > li")
    for index, (way, text) in enumerate([("Text", HOSTILE), ("JSON", '"number": 1'), ("Hex", "00000010  10 11 12")]):
        rows.nth(index).locator("summary").click()
        expect(rows.nth(index).locator("pre")).to_contain_text(text)
        expect(rows.nth(index).get_by_role("button", name=way)).to_have_attribute("aria-pressed", "true")
    assert page.locator(".browsed img").count() == 0
    rows.nth(1).get_by_role("button", name="Hex").click()
    expect(rows.nth(1).locator("pre")).to_contain_text("7b 22 6e 75")
    with page.expect_download() as download:
        rows.nth(2).get_by_role("button", name="Download").click()
    assert download.value.path().read_bytes() == bytes(range(256))


def test_a_text_is_looked_for(log_in: LogIn, queue: str) -> None:
    page = log_in(f"browse/%2F/{queue}")
    page.get_by_label("Search text").fill("BODY 77")
    page.get_by_label("Search text").press("Enter")
    expect(page.locator(".browsed > li")).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="120 searched")).to_be_visible()
    assert "text=BODY+77" in page.url


def test_who_holds_them(log_in: LogIn, site: LeveretProcess, api: httpx.Client) -> None:
    api.put("queues/%2F/browsed.held", json={}).raise_for_status()
    with BlockingConnection(site.url, reconnect=False) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.publish(b"mine", "", "browsed.held")
        channel.wait_for_confirms()
        channel.consume("browsed.held", tag="the-holder")
        assert channel.next_delivery(30) is not None
        page = log_in("browse/%2F/browsed.held")
        expect(page.get_by_role("status").filter(has_text="1 unacknowledged")).to_be_visible()
        page.get_by_label("Which messages").select_option("unacked")
        page.locator(".browsed summary").click()
        expect(page.locator(".browsed .facts")).to_contain_text("the-holder")


def test_who_may_not_read_is_told_so(log_in: LogIn, api: httpx.Client, watch: Watch, queue: str) -> None:
    watch.allowed.append("the server responded with a status of 4")
    api.put("users/web-blind", json={"password": "secret", "tags": "management"}).raise_for_status()
    api.put("permissions/%2F/web-blind", json={"configure": "", "write": "", "read": ""}).raise_for_status()
    page = log_in(f"browse/%2F/{queue}", "web-blind", "secret")
    expect(page.get_by_role("alert").filter(has_text="access to queue 'browsed'")).to_be_visible()
