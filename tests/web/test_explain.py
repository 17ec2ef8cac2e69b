"""The page that explains where a message goes: a form, a tree, and links to it."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import expect

from .conftest import LogIn, Watch

HOSTILE = "explained <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def topology(api: httpx.Client) -> None:
    """A topic exchange with two queues, one of them full with reject-publish; dead letters go on from the other."""
    dead = {"x-message-ttl": 4000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "explained.end"}
    full = {"x-max-length": 0, "x-overflow": "reject-publish"}
    for name, arguments in (("explained.end", {}), (HOSTILE, dead), ("explained.full", full), ("explained.lonely", {})):
        api.put(f"queues/%2F/{quote(name, safe='')}", json={"arguments": arguments}).raise_for_status()
    api.put(
        "exchanges/%2F/explained", json={"type": "topic", "arguments": {"alternate-exchange": "amq.fanout"}}
    ).raise_for_status()
    for name, key in ((HOSTILE, "order.*.paid"), ("explained.full", "order.#")):
        api.post(f"bindings/%2F/e/explained/q/{quote(name, safe='')}", json={"routing_key": key}).raise_for_status()


def test_a_question_and_its_answer(log_in: LogIn, topology: None) -> None:
    page = log_in("explain")
    page.get_by_label("Exchange").fill("explained")
    page.get_by_label("Routing key").fill("order.7.sent")
    page.get_by_label("Routing key").press("Enter")
    answer = page.locator(".explained")
    expect(answer.locator(".summary")).to_contain_text("1 queue rejects it.")
    expect(answer).to_contain_text("word 3 of the key is 'sent', the pattern requires 'paid' there")
    expect(answer).to_contain_text("1 of 2 bindings match")
    expect(answer.locator("li.no")).to_contain_text("does not match")
    expect(answer.locator("summary", has_text="explained.full")).to_contain_text("rejects it")
    assert re.search(r"exchange=explained&routing_key=order.7.sent", page.url)


def test_the_address_is_the_question(log_in: LogIn, topology: None) -> None:
    page = log_in("explain/%2F?exchange=explained&routing_key=order.7.paid")
    answer = page.locator(".explained")
    expect(answer.locator(".summary")).to_contain_text("1 queue rejects it, 1 queue receives it.")
    # a name that looks like markup is shown as text, and dead letters are followed
    expect(answer.locator("summary", has_text=HOSTILE)).to_contain_text("receives it")
    expect(answer.locator(".dead")).to_contain_text("When it expires")
    expect(answer.locator(".dead summary", has_text="explained.end")).to_contain_text("receives it")
    assert page.locator(".explained img").count() == 0


def test_why_is_nothing_here(log_in: LogIn, topology: None) -> None:
    page = log_in("queues/%2F/explained.full")
    page.get_by_role("link", name="Why is nothing here?").click()
    expect(page.get_by_label("Exchange")).to_have_value("explained")
    expect(page.locator(".asked")).to_contain_text("none of its bindings matches the message")
    page.goto(page.url.partition("#")[0] + "#/explain/%2F?destination=explained.lonely")
    expect(page.locator(".asked")).to_contain_text("only the default exchange reaches it")


def test_what_is_wrong_is_said(log_in: LogIn, watch: Watch, topology: None) -> None:
    watch.allowed.append("the server responded with a status of 4")
    page = log_in("explain/%2F?exchange=nowhere")
    expect(page.locator(".refusals")).to_contain_text("no exchange 'nowhere' in vhost '/'")
    page.get_by_label("Exchange").fill("amq.topic")
    page.get_by_label("Published by").fill("nobody-at-all")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("alert").filter(has_text="does not exist")).to_be_visible()
    page.get_by_label("Headers").fill("{")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("alert").filter(has_text="not a JSON object")).to_be_visible()


def test_who_is_no_administrator_asks_for_himself(log_in: LogIn, users: dict[str, str], topology: None) -> None:
    page = log_in("explain/%2F?exchange=amq.fanout", users["management"], "secret")
    expect(page.locator(".summary")).to_contain_text("The message reaches no queue")
    expect(page.get_by_label("Published by")).to_have_count(0)


def test_on_a_phone_nothing_sticks_out(log_in: LogIn, topology: None) -> None:
    page = log_in("explain/%2F?exchange=explained&routing_key=order.7.paid")
    page.set_viewport_size({"width": 375, "height": 700})
    expect(page.locator(".explained .step").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
