"""The page states what it knows, as soon as it knows it, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pika
import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.waiting import until

from leveret.testing.processes import LeveretProcess

from .conftest import LogIn, Watch

INK = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colour = [15, 110, 104];
  let count = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 200 && colour.every((each, of) => Math.abs(data[at + of] - each) < 24)) count += 1;
  return count;
}"""
"""How many pixels of a chart have the colour of its first line."""

TICKS = """() => {
  const draw = CanvasRenderingContext2D.prototype.fillText;
  window.drawn = [];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
    window.drawn.push(text);
    return draw.call(this, text, ...more);
  };
}"""
"""Record what is written into charts from now on."""

MISSING = {
    "queues/%2F/speech.none": "queue",
    "browse/%2F/speech.none": "queue",
    "exchanges/%2F/speech.none": "exchange",
    "streams/%2F/speech.none": "stream",
    "vhosts/speech.none": "virtual host",
    "users/speech.none": "user",
    "connections/speech.none": "connection",
    "channels/speech.none": "channel",
}


@pytest.fixture
def publisher(site: LeveretProcess) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(site.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def cell(page: Page, name: str, label: str) -> Locator:
    return page.get_by_role("row").filter(has_text=name).locator(f'td[data-label="{label}"]')


def with_rate(rate: float) -> object:
    """Return a list in which every counter of a row has this rate, as after enough samples."""

    def answer(route: Route) -> None:
        found = route.fetch()
        document = found.json()
        for item in document["items"]:
            item["message_stats"] = {"publish_details": {"rate": rate}, "publish_in_details": {"rate": rate}}
        route.fulfill(response=found, json=document)

    return answer


def test_a_rate_is_unknown_until_the_broker_has_looked_twice(log_in: LogIn, page: Page, api: httpx.Client) -> None:
    api.put("queues/%2F/speech.rates", json={"durable": True})
    page.clock.install()
    page.add_init_script("localStorage.setItem('leveret.interval', '30')")
    page.route(re.compile(r"/api/(queues|exchanges|vhosts)\?page="), with_rate(0))
    log_in()
    for address, name in (("queues?name=speech.rates", "speech.rates"), ("exchanges", "amq.direct"), ("vhosts", "/")):
        page.goto(page.url.split("#")[0] + f"#/{address}")
        place = cell(page, name, "In /s").first
        expect(place).not_to_be_empty()
        assert place.inner_text() == "–"
        page.clock.fast_forward(30_100)
        expect(place).to_have_text("0")


def test_a_single_rate_is_drawn(log_in: LogIn, api: httpx.Client, publisher: object) -> None:
    api.put("queues/%2F/speech.drawn", json={"durable": True})
    page = log_in("queues/%2F/speech.drawn")
    chart = page.locator(".chart", has_text="Messages per second")
    expect(chart.locator("li", has_text="published").locator("b")).to_have_text("–")
    page.get_by_role("button", name="Pause").click()  # so that the request for the message is the last one
    publisher.basic_publish("", "speech.drawn", b"x")  # type: ignore[attr-defined]
    page.keyboard.press("r")
    expect(chart.locator("li", has_text="published").locator("b")).not_to_have_text(re.compile("–|^0$"))
    assert chart.locator("canvas").evaluate(INK) > 0


def test_an_axis_has_each_time_once(log_in: LogIn, page: Page) -> None:
    page.add_init_script(f"({TICKS})()")
    log_in("exchanges/%2F/amq.fanout")
    expect(page.locator(".chart canvas")).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    page.evaluate("window.drawn = []")
    page.set_viewport_size({"width": 1390, "height": 900})
    until(lambda: drawn_times(page) != [])
    assert len(set(drawn_times(page)[:3])) == 3


def drawn_times(page: Page) -> list[str]:
    """Return the times that stand below charts, in the order in which they were written."""
    return [text for text in page.evaluate("window.drawn") if re.fullmatch(r"\d\d:\d\d:\d\d", text)]


def test_badges_are_as_wide_as_their_words(log_in: LogIn, api: httpx.Client) -> None:
    arguments = {
        "x-message-ttl": 60000, "x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "k", "x-max-length": 9,
        "x-max-priority": 3, "x-overflow": "reject-publish",
    }  # fmt: skip
    api.put("queues/%2F/speech.features", json={"durable": True, "arguments": arguments})
    policy = {"pattern": "^speech.features$", "definition": {"max-length": 7}, "apply-to": "queues"}
    api.put("policies/%2F/speech.rule", json=policy)
    page = log_in("queues?name=speech.features")
    badges = cell(page, "speech.features", "Features").locator(".badge")
    expect(badges).to_have_count(7)
    assert set(badges.all_inner_texts()) == {"TTL", "DLX", "DLK", "Lim", "Pri", "Ovfl", "speech.rule"}
    expect(badges.filter(has_text="TTL")).to_have_attribute("title", "x-message-ttl: 60000")
    expect(badges.filter(has_text="speech.rule")).to_have_attribute("title", "policy speech.rule\nmax-length: 7")
    for badge in badges.filter(has_not_text="speech").all():
        assert badge.evaluate("(each) => each.scrollWidth <= each.clientWidth && each.clientWidth < 60")
    api.delete("policies/%2F/speech.rule")


def test_what_does_not_exist_has_no_buttons(log_in: LogIn, watch: Watch) -> None:
    watch.allowed += ["404 (Not Found)"]
    page = log_in("overview")
    for address, noun in MISSING.items():
        page.goto(page.url.split("#")[0] + f"#/{address}")
        expect(page.get_by_role("alert").filter(has_text=f"This {noun} does not exist.")).to_be_visible()
        expect(page.locator("main .page-root > *").first).to_be_hidden()
        expect(page.locator("main").get_by_role("button")).to_have_count(0)


def test_what_was_deleted_keeps_its_last_state_without_buttons(log_in: LogIn, watch: Watch, api: httpx.Client) -> None:
    watch.allowed += ["404 (Not Found)"]
    api.put("queues/%2F/speech.gone", json={"durable": True})
    page = log_in("queues/%2F/speech.gone")
    expect(page.locator(".facts").first).to_contain_text("running")
    api.delete("queues/%2F/speech.gone")
    page.keyboard.press("r")
    expect(page.get_by_role("alert").filter(has_text="This queue no longer exists.")).to_be_visible()
    expect(page.locator(".facts").first).to_be_visible()
    place = page.locator(".actions button", has_text="Delete").bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + 5, place["y"] + 5)
    assert page.get_by_role("dialog").count() == 0
    api.put("queues/%2F/speech.gone", json={"durable": True})
    page.keyboard.press("r")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("0 messages")


def test_who_asks_why_nothing_is_there(log_in: LogIn, api: httpx.Client, publisher: object) -> None:
    api.put("queues/%2F/speech.why", json={"durable": True})
    page = log_in("queues/%2F/speech.why")
    expect(page.get_by_role("link", name="Why is nothing here?")).to_be_visible()
    publisher.basic_publish("", "speech.why", b"x")  # type: ignore[attr-defined]
    page.keyboard.press("r")
    expect(page.get_by_role("link", name="Explain a route").last).to_be_visible()
    expect(page.get_by_role("link", name="Why is nothing here?")).to_have_count(0)


def test_an_unknown_argument_is_told(log_in: LogIn, watch: Watch, api: httpx.Client) -> None:
    watch.allowed += ["400 (Bad Request)"]
    page = log_in("queues")
    page.get_by_role("button", name="Add a queue").click()
    dialog = page.get_by_role("dialog", name="Add a queue")
    dialog.get_by_label("Name").fill("speech.slip")
    dialog.get_by_label("Arguments").fill('{"x-max-length": -1}')
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("it must not be negative, but is -1")
    expect(dialog.get_by_role("alert")).not_to_contain_text("{")
    dialog.get_by_label("Arguments").fill('{"x-max-lenght": 5}')
    dialog.get_by_role("button", name="Add", exact=True).click()
    refused = dialog.get_by_role("alert").filter(has_text="x-max-lenght is unknown to this broker")
    expect(refused.or_(page.get_by_role("heading", level=1, name="speech.slip"))).to_be_visible()
    assert "did you mean x-max-length?" in "".join(refused.all_inner_texts())
    assert api.get("queues/%2F/speech.slip").status_code == 404
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("speech.slip")
    expect(page.locator(".callout.warn")).to_contain_text("did you mean x-max-length?")
    api.put("exchanges/%2F/speech.slip", json={"type": "fanout", "arguments": {"alternative-exchange": "a"}})
    page.goto(page.url.replace("queues/", "exchanges/"))
    expect(page.locator(".callout.warn")).to_contain_text("alternative-exchange is unknown to this broker")
