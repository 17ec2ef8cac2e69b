"""The drawn pages: bindings, federation, delayed messages, streams, direct replies; on brokers with real data."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from urllib.parse import quote

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Locator, Page, expect

from leveret.client.blocking import BlockingConnection
from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS
from ..waiting import until
from .conftest import LogIn, Watch

HOSTILE = '<img src=x onerror="document.title=1"> \u202egnp'
SHOWN = '<img src=x onerror="document.title=1"> \\u202egnp'
REPLY_TO = "amq.rabbitmq.reply-to"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def channel(site: LeveretProcess) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(f"{site.url}?heartbeat=0"))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def nodes(page: Page, kind: str = "") -> Locator:
    return page.locator(f".drawing-svg .node{kind}")


# -- bindings ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide(channel: BlockingChannel, api: httpx.Client) -> str:
    """An exchange with 300 queues, an alternate, one that leads to it, and a queue that dead-letters to it."""
    channel.exchange_declare("maps.wide", "topic", durable=True, arguments={"alternate-exchange": "maps.rest"})
    channel.exchange_declare("maps.rest", "fanout", durable=True)
    channel.exchange_declare("maps.in", "topic", durable=True)
    channel.exchange_bind("maps.wide", "maps.in", "in.#")
    queues = [{"vhost": "/", "name": f"maps.q{number}", "durable": True, "auto_delete": False, "arguments": {}}
              for number in range(300)]  # fmt: skip
    bindings = [{"vhost": "/", "source": "maps.wide", "destination": f"maps.q{number}", "destination_type": "queue",
                 "routing_key": f"key.{number}", "arguments": {}} for number in range(300)]  # fmt: skip
    assert api.post("definitions", json={"queues": queues, "bindings": bindings}).status_code == 204
    channel.queue_declare("maps.dying", durable=True, arguments={"x-dead-letter-exchange": "maps.wide"})
    return "maps.wide"


@pytest.fixture(scope="module")
def hostile(channel: BlockingChannel) -> str:
    channel.exchange_declare(HOSTILE, "topic", durable=True)
    channel.queue_declare(HOSTILE, durable=True)
    channel.queue_bind(HOSTILE, HOSTILE, HOSTILE)
    return HOSTILE


def test_three_hundred_bindings_are_drawn_when_somebody_wants_all(log_in: LogIn, wide: str) -> None:
    page = log_in(f"exchanges/%2F/{wide}")
    expect(nodes(page, ".queue")).to_have_count(41)  # and the queue that dead-letters
    expect(nodes(page, ".exchange")).to_have_count(3)
    expect(nodes(page, ".more").locator(".node-text").first).to_have_text("and 260 more")
    expect(page.locator(".edge.alternate .edge-label")).to_have_text("alternate")
    expect(page.locator(".edge.dead_letter")).to_have_count(1)
    expect(page.locator(".edge-label", has_text=re.compile("^key.0$"))).to_be_visible()
    page.get_by_role("button", name=re.compile("260 more destinations")).press("Enter")
    expect(nodes(page, ".queue")).to_have_count(301)
    expect(page.locator(".drawing-table tbody tr")).to_have_count(303)
    boxes = (
        nodes(page, ".queue")
        .locator(".node-box")
        .evaluate_all("all => all.map(each => [each.x.baseVal.value, each.y.baseVal.value, each.height.baseVal.value])")
    )
    columns: dict[float, list[tuple[float, float]]] = {}
    for x, y, height in boxes:
        columns.setdefault(x, []).append((y, y + height))
    for column in columns.values():
        column.sort()
        assert all(above[1] < below[0] for above, below in pairwise(column))  # no node covers another


def test_a_drawing_is_moved_by_keys_and_leads_to_what_it_shows(log_in: LogIn, wide: str) -> None:
    page = log_in(f"exchanges/%2F/{wide}")
    expect(nodes(page, ".focus")).to_have_attribute("tabindex", "0")
    nodes(page, ".focus").focus()
    before = page.locator(".drawing-svg > g").get_attribute("transform")
    page.keyboard.press("+")
    assert page.locator(".drawing-svg > g").get_attribute("transform") != before
    page.keyboard.press("ArrowRight")
    focused = page.locator(".node:focus")
    expect(focused).to_have_class(re.compile("queue|exchange|more"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".node.focus:focus")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    name = page.locator(".node:focus").get_attribute("data-id")
    assert name in ("exchange:maps.in", "queue:maps.dying")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(str(name).partition(":")[2])


def test_dragging_moves_and_does_not_click(log_in: LogIn, wide: str) -> None:
    page = log_in(f"exchanges/%2F/{wide}")
    box = nodes(page, ".focus").bounding_box()
    assert box is not None
    before = page.url
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 40, steps=4)
    page.mouse.up()
    moved = nodes(page, ".focus").bounding_box()
    assert moved is not None
    assert abs(moved["x"] - box["x"] - 80) < 3
    assert page.url == before


def test_hostile_names_are_shown_as_text(log_in: LogIn, hostile: str) -> None:
    page = log_in(f"exchanges/%2F/{quote(hostile, safe='')}")
    expect(nodes(page, ".queue")).to_have_attribute("aria-label", re.compile(re.escape(f"Queue {SHOWN}")))
    expect(page.locator(".drawing-table tbody td").nth(1)).to_have_text(SHOWN)
    assert page.locator("main img").count() == 0
    nodes(page, ".queue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(SHOWN)


def test_a_whole_virtual_host_says_what_is_left_out(log_in: LogIn, wide: str, channel: BlockingChannel) -> None:
    page = log_in("topology")
    expect(page.locator(".drawing-left")).to_contain_text("neighbours are not drawn")
    expect(page.locator(".drawing-left")).to_contain_text("queues are not shown")
    channel.exchange_declare("maps.late", "topic")
    channel.exchange_bind("maps.wide", "maps.late", "later")
    page.keyboard.press("r")  # refresh at once instead of in some seconds
    expect(page.locator(".node[data-id='exchange:maps.late']")).to_have_count(1)
    channel.exchange_delete("maps.late")


# -- federation -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def upstream() -> Iterator[LeveretProcess]:
    with LeveretProcess(admin=True) as process:
        yield process


@pytest.fixture(scope="module")
def federated(site: LeveretProcess, api: httpx.Client, channel: BlockingChannel, upstream: LeveretProcess) -> str:
    """An exchange federated from another broker, and from one that does not exist."""
    channel.exchange_declare("maps.flights", "topic", durable=True)
    channel.queue_declare("maps.landed", durable=True)
    channel.queue_bind("maps.landed", "maps.flights", "#")
    for name, uri in (("ewr", upstream.url), ("gone", "amqp://127.0.0.1:1")):
        value = {"uri": uri, "reconnect-delay": 1}
        path = f"parameters/federation-upstream/%2F/{name}"
        assert api.put(path, json={"value": value}).status_code == 201
    policy = {"pattern": "^maps.flights$", "definition": {"federation-upstream-set": "all"}, "apply-to": "exchanges"}
    assert api.put("policies/%2F/maps", json=policy).status_code == 201
    until(lambda: status(api, "ewr") == "running")
    return "maps.flights"


def status(api: httpx.Client, upstream: str) -> str:
    return next(
        (str(each["status"]) for each in api.get("federation-links").json() if each["upstream"] == upstream), ""
    )


def test_links_are_drawn_paused_resumed_and_restarted(
    log_in: LogIn, federated: str, api: httpx.Client, upstream: LeveretProcess
) -> None:
    page = log_in("federation")
    card = page.locator(".link-card", has_text="at ewr")
    expect(card.locator(".badge")).to_have_text("running")
    expect(page.locator(".edge.good .edge-label")).to_contain_text("running")
    expect(page.locator(".edge.bad .edge-label")).to_have_text("error")
    expect(page.locator(".link-card", has_text="at gone").locator(".error")).to_contain_text("127.0.0.1:1")
    with pika.BlockingConnection(pika.URLParameters(upstream.url)) as connection:
        there = connection.channel()
        there.confirm_delivery()
        for _ in range(7):
            there.basic_publish("maps.flights", "a", b"m")
    until(lambda: any(each["messages"] == 7 for each in api.get("federation-links").json()))
    page.keyboard.press("r")
    expect(card.locator(".figures dd").nth(1)).to_have_text("7")
    card.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(card.locator(".badge")).to_have_text("paused")
    assert status(api, "ewr") == "paused"
    expect(page.locator(".edge.warn .edge-label")).to_have_text("paused")
    card.get_by_role("button", name="Resume").click()
    until(lambda: status(api, "ewr") == "running")
    page.keyboard.press("r")
    expect(card.locator(".badge")).to_have_text("running")
    card.get_by_role("button", name="Restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    until(lambda: status(api, "ewr") == "running")


def test_a_broker_in_the_picture_leads_to_its_links(log_in: LogIn, federated: str) -> None:
    page = log_in("federation")
    expect(page.locator(".link-card")).to_have_count(2)
    page.get_by_role("button", name=re.compile("upstream gone")).press("Enter")
    expect(page.locator(".link-card")).to_have_count(1)
    page.get_by_role("button", name="All links").click()
    expect(page.locator(".link-card")).to_have_count(2)


def test_the_other_side_sees_who_takes_from_it(federated: str, upstream: LeveretProcess) -> None:
    url = f"{upstream.admin_url}/api/federation-downstreams"
    answer = httpx.get(url, auth=("guest", "guest"), verify=NO_TLS).json()
    assert [(each["exchange"], each["status"]) for each in answer] == [("maps.flights", "running")]


# -- delayed messages -----------------------------------------------------------------------------------------------


@pytest.fixture
def later(channel: BlockingChannel, api: httpx.Client) -> Iterator[str]:
    """A delayed exchange with twenty messages that are due in one hour, ten in a year, and one without an id."""
    channel.exchange_declare("maps.later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    channel.queue_declare("maps.due", durable=True)
    channel.queue_bind("maps.due", "maps.later", "due")
    for count, delay_ms in ((20, HOUR_MS), (10, 365 * 24 * HOUR_MS)):
        for number in range(count):
            headers = {"x-delay": delay_ms + 100 * number}
            properties = pika.BasicProperties(delivery_mode=2, message_id=f"{delay_ms}-{number}", headers=headers)
            channel.basic_publish("maps.later", "due", b"m", properties)
    nameless = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 2 * HOUR_MS})
    channel.basic_publish("maps.later", "due", b"nameless", nameless)
    yield "maps.later"
    channel.exchange_delete("maps.later")
    channel.queue_delete("maps.due")


def pending(api: httpx.Client) -> int:
    return sum(int(each["messages"]) for each in api.get("delayed/%2F?layout=maps.later").json())


def figure(page: Page, name: str) -> Locator:
    return page.locator(".spread-figures > div", has=page.locator("dt", has_text=re.compile(f"^{name}$"))).locator("dd")


def test_all_are_on_the_axis_and_a_stretch_of_it_is_a_list(log_in: LogIn, later: str) -> None:
    page = log_in("delayed")
    expect(figure(page, "Waiting")).to_have_text("31")
    expect(page.locator(".spread .tick", has_text="8 mo")).to_be_visible()  # the axis is as long as it must be
    bars = page.locator(".bar-due")
    counts = bars.evaluate_all("all => all.map(each => Number(each.dataset.count))")
    assert sum(counts) == 31
    expect(page.locator(".due tbody tr")).to_have_count(31)
    bars.last.click()
    expect(page.locator(".due tbody tr")).to_have_count(10)
    page.get_by_role("button", name="Show all").click()
    expect(page.locator(".due tbody tr")).to_have_count(31)
    # the same with the keyboard: the first bar from the right that has messages
    page.locator(".spread-svg").focus()
    page.keyboard.press("End")
    for _ in range(130):
        if page.locator(".spread-said").inner_text().startswith("10 messages"):
            break
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator(".due tbody tr")).to_have_count(10)
    page.locator(".spread-svg").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".due tbody tr")).to_have_count(31)


def test_picked_messages_are_cancelled(log_in: LogIn, later: str, api: httpx.Client) -> None:
    page = log_in("delayed")
    rows = page.locator(".due tbody tr")
    expect(rows).to_have_count(31)
    rows.filter(has_text="3600000-3").first.get_by_role("checkbox").check()
    rows.filter(has=page.get_by_text("–", exact=True)).get_by_role("checkbox").check()  # the message without an id
    page.get_by_role("button", name="Cancel selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 2 messages").click()
    expect(rows).to_have_count(29)
    assert pending(api) == 29
    left = {each["message_id"] for each in api.get("delayed/%2F/messages").json()}
    assert None not in left
    assert "3600000-3" not in left
    assert "3600000-4" in left


def test_a_picked_message_gets_another_time_and_arrives(
    log_in: LogIn, later: str, api: httpx.Client, channel: BlockingChannel
) -> None:
    page = log_in("delayed")
    rows = page.locator(".due tbody tr")
    rows.filter(has_text="3600000-5").first.get_by_role("checkbox").check()
    page.get_by_role("button", name="Reschedule selected").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("After").fill("0")
    dialog.get_by_role("button", name="Reschedule").click()
    expect(rows).to_have_count(30)

    def arrived() -> str | None:
        method, properties, _ = channel.basic_get("maps.due", auto_ack=True)
        return str(properties.message_id) if method is not None else None

    assert until(arrived) == "3600000-5"


def test_all_of_a_stretch_get_another_time(log_in: LogIn, later: str, api: httpx.Client) -> None:
    page = log_in("delayed")
    expect(page.locator(".spread .tick", has_text="8 mo")).to_be_visible()  # the axis is as long as it must be
    page.locator(".bar-due").last.click()
    expect(page.locator(".due tbody tr")).to_have_count(10)
    page.get_by_role("button", name="Reschedule all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Reschedule 10 messages")
    dialog.get_by_label("After").fill("5")
    dialog.get_by_label("Unit").select_option("days")
    dialog.get_by_role("button", name="Reschedule").click()
    expect(page.locator(".notice")).to_contain_text("10 messages now due")
    due_ms = [each["due_ms"] for each in api.get("delayed/%2F/messages").json()]
    assert sum(1 for each in due_ms if abs(each / 1000 - time.time() - 5 * 86_400) < 600) == 10


def test_all_are_cancelled_only_when_somebody_says_so(log_in: LogIn, later: str, api: httpx.Client) -> None:
    page = log_in("delayed")
    expect(page.locator(".due tbody tr")).to_have_count(31)
    page.get_by_role("button", name="Cancel all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert pending(api) == 31
    page.get_by_role("button", name="Cancel all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 31 messages").click()
    expect(page.get_by_text("No delayed messages.")).to_be_visible()
    assert pending(api) == 0


# -- streams, direct replies ----------------------------------------------------------------------------------------


def test_a_stream_and_how_far_its_readers_are(log_in: LogIn, channel: BlockingChannel, site: LeveretProcess) -> None:
    channel.queue_declare("maps.stream", durable=True, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
    for _ in range(50):
        channel.basic_publish("", "maps.stream", b"event")
    with BlockingConnection(site.url, reconnect=False) as connection:
        reader = connection.channel()
        reader.qos(10)
        reader.consume("maps.stream", tag="slow", arguments={"x-stream-offset": "first"})
        page = log_in("streams")
        page.get_by_role("link", name="maps.stream").click()
        expect(page.locator(".range", has_text="Committed")).to_contain_text("0 – 49")
        expect(page.locator(".range", has_text="slow")).to_contain_text("lag 40")
        expect(page.get_by_role("img", name=re.compile("slow continues at offset 10, lag 40"))).to_be_visible()


def test_queries_and_how_far_they_are(log_in: LogIn, channel: BlockingChannel) -> None:
    channel.queue_declare("maps.read", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for _ in range(50):
        channel.basic_publish("", "maps.read", b"event")
    report = {"op": "report", "query": "id-1", "title": "maps <b>", "checkpoint": "/lake/cp", "batch": 4, "rows": 30}
    channel.basic_publish("", "amq.leveret.stage", json.dumps({**report, "streams": {"maps.read": 30}}))
    row = log_in("queries").locator("tbody tr", has_text="maps <b>")
    for text in ("id-1", "/lake/cp", "maps.read from 30", "20", "ago"):
        expect(row).to_contain_text(text)


def test_direct_replies_and_those_to_nobody(log_in: LogIn, channel: BlockingChannel, site: LeveretProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(f"{site.url}?heartbeat=0")) as connection:
        requester, replier = connection.channel(), connection.channel()
        requester.queue_declare("maps.rpc", auto_delete=True)
        tag = requester.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True, consumer_tag="waiting <b>")
        requester.basic_publish("", "maps.rpc", b"ask", pika.BasicProperties(reply_to=REPLY_TO))
        name = until(lambda: (found := replier.basic_get("maps.rpc", auto_ack=True))[0] and found[1]).reply_to
        replier.confirm_delivery()
        for _ in range(2):
            replier.basic_publish("", name, b"answer")
        page = log_in("replies")
        row = page.locator("tbody tr", has_text="waiting <b>")
        expect(row).to_contain_text("2")
        requester.basic_cancel(tag)
        for _ in range(3):
            replier.basic_publish("", name, b"too late")
        page.keyboard.press("r")
        expect(page.locator("tbody .badge")).to_have_text("3")
        expect(figure(page, "Undelivered replies")).to_have_text("3")


# -- all pages ---------------------------------------------------------------------------------------------------------


def test_on_a_phone_nothing_is_wider_than_the_window(log_in: LogIn, wide: str) -> None:
    page = log_in("topology")
    page.set_viewport_size({"width": 390, "height": 844})
    for address in ("topology", "federation", "delayed", "streams", "queries", "replies", f"exchanges/%2F/{wide}"):
        page.goto(page.url.partition("#")[0] + f"#/{address}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth")


def test_nothing_is_asked_while_nobody_looks(log_in: LogIn, page: Page, watch: Watch, wide: str) -> None:
    """On the test's clock an hour passes, in which the page would have sent thousands of requests."""
    page.clock.install()
    log_in("topology")
    expect(nodes(page).first).to_be_visible()
    page.wait_for_load_state("networkidle")
    look = """hidden => {
        Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(look, True)
    page.get_by_label("Refresh").select_option("1")
    before = len(watch.asked("/api/topology"))
    page.clock.fast_forward("01:00:00")
    page.clock.run_for(10_000)
    assert len(watch.asked("/api/topology")) == before
    with page.expect_request("**/api/topology/**"):
        page.evaluate(look, False)
        page.clock.run_for(2000)


def test_who_may_not_see_the_links_is_told_why(log_in: LogIn, users: dict[str, str]) -> None:
    page = log_in("federation", user=users["management"], password="secret")
    expect(page.get_by_text("This page requires the monitoring or administrator tag")).to_be_visible()
