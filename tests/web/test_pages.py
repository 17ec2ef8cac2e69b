"""Each page shows what exists, and its actions work."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pika
import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Route, expect

from leveret.testing.processes import LeveretProcess

from .conftest import LogIn, Watch


@pytest.fixture(scope="module")
def connection(site: LeveretProcess) -> Iterator[pika.BlockingConnection]:
    """A named client of the test that consumes from one queue and has published to another."""
    parameters = pika.URLParameters(site.url)
    parameters.client_properties = {"connection_name": "the tester"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("pages.in", durable=True, arguments={"x-max-length": 1000})
    channel.queue_declare("pages.out", durable=True)
    channel.exchange_declare("pages.x", "topic", durable=True)
    channel.queue_bind("pages.in", "pages.x", "in.#")
    for number in range(3):
        channel.basic_publish(
            "pages.x", "in.first", b'{"number": %d}' % number, pika.BasicProperties(headers={"n": number})
        )
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume("pages.out", lambda *_: None, consumer_tag="the-consumer")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def channel_name(connection: pika.BlockingConnection, api: httpx.Client) -> str:
    return next(str(each["name"]) for each in api.get("channels").json() if each["prefetch_count"] == 7)


def expect_fact(page: Page, name: str, value: str | re.Pattern[str]) -> None:
    place = page.locator(".facts > div", has=page.locator("dt", has_text=re.compile(f"^{re.escape(name)}$")))
    expect(place.first.locator("dd")).to_have_text(value)


def test_the_overview(log_in: LogIn, connection: pika.BlockingConnection, api: httpx.Client) -> None:
    page = log_in()
    totals = api.get("overview").json()["object_totals"]
    expect(page.locator(".tiles li", has_text="Connections").locator("b")).to_have_text(str(totals["connections"]))
    expect(page.locator(".chart")).to_have_count(5)
    expect(page.locator(".chart canvas")).to_have_count(5)
    expect(
        page.locator(".chart", has_text="Queued messages").locator("li", has_text="ready").locator("b")
    ).not_to_have_text("–")
    expect_fact(page, "Processors", re.compile(r"\d+"))
    expect(page.locator(".alarms")).to_be_hidden()


def test_an_alarm_is_seen(log_in: LogIn, page: Page) -> None:
    def with_alarm(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=[each | {"disk_free_alarm": True} for each in answer.json()])

    page.route("**/api/nodes?*", with_alarm)
    log_in()
    expect(page.get_by_role("alert").filter(has_text="Disk alarm")).to_contain_text("Publishers are blocked")


def test_a_queue(log_in: LogIn, connection: pika.BlockingConnection) -> None:
    page = log_in("queues/%2F/pages.in")
    expect(page.get_by_role("heading", level=1)).to_have_text("pages.in")
    expect_fact(page, "Ready", "3")
    expect_fact(page, "Arguments", "x-max-length: 1000")
    bindings = page.get_by_role("grid", name="Bindings to this queue")
    expect(bindings.get_by_role("row").filter(has_text="pages.x")).to_contain_text("in.#")
    page.goto(page.url.replace("pages.in", "pages.out"))
    expect(
        page.get_by_role("grid", name="Consumers").get_by_role("row").filter(has_text="the-consumer")
    ).to_contain_text("7")


def test_messages_are_looked_at_and_taken(log_in: LogIn, api: httpx.Client) -> None:
    api.put("queues/%2F/pages.got", json={"durable": True})
    for text in ("first", "second"):
        body = {
            "routing_key": "pages.got",
            "payload": text,
            "payload_encoding": "string",
            "properties": {"headers": {"kind": text}},
        }
        assert api.post("exchanges/%2F/amq.default/publish", json=body).json() == {"routed": True}
    page = log_in("queues/%2F/pages.got")
    page.get_by_role("button", name="Get messages").click()
    dialog = page.get_by_role("dialog", name="Messages of pages.got")
    expect(dialog).to_contain_text("Messages stay in the queue")
    dialog.get_by_label("How many").fill("5")
    dialog.get_by_role("button", name="Get messages").click()
    expect(dialog.get_by_label("Payload", exact=True)).to_have_text(["first", "second"])
    expect(dialog.locator(".message").first).to_contain_text("kind: first")
    expect_fact(page, "Ready", "2")
    dialog.get_by_label("Afterwards").select_option(label="Acknowledge (remove)")
    expect(dialog).to_contain_text("acknowledged and removed from the queue")
    dialog.get_by_label("How many").fill("1")
    dialog.get_by_role("button", name="Get messages").click()
    expect(dialog.get_by_label("Payload", exact=True)).to_have_text(["first"])
    expect(dialog).to_contain_text("redelivered")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect_fact(page, "Ready", "1")
    page.get_by_role("button", name="Purge", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("cannot be recovered")
    page.get_by_role("dialog").get_by_role("button", name="Purge", exact=True).click()
    expect_fact(page, "Ready", "0")


def test_a_queue_from_birth_to_death(log_in: LogIn, api: httpx.Client, watch: Watch) -> None:
    watch.allowed += ["400 (Bad Request)"]
    page = log_in("queues")
    page.get_by_role("button", name="Add a queue").click()
    dialog = page.get_by_role("dialog", name="Add a queue")
    dialog.get_by_label("Name").fill("pages.new")
    dialog.get_by_label("Arguments").fill("[1]")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("not a JSON object")
    dialog.get_by_label("Arguments").fill('{"x-max-length": "many"}')
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("x-max-length")
    dialog.get_by_label("Arguments").fill('{"x-max-length": 5}')
    dialog.get_by_label("Type").select_option("quorum")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pages.new")
    made = api.get("queues/%2F/pages.new").json()
    assert (made["type"], made["arguments"]["x-max-length"], made["durable"]) == ("quorum", 5, True)
    page.get_by_role("button", name="Add a binding").click()
    dialog = page.get_by_role("dialog", name="Add a binding")
    dialog.get_by_label("From exchange").fill("amq.topic")
    dialog.get_by_label("Routing key").fill("new.#")
    dialog.get_by_role("button", name="Bind", exact=True).click()
    row = page.get_by_role("grid", name="Bindings to this queue").get_by_role("row").filter(has_text="new.#")
    expect(row).to_contain_text("amq.topic")
    page.get_by_role("button", name="Publish", exact=True).click()
    dialog = page.get_by_role("dialog", name="Publish to the default exchange")
    dialog.get_by_label("Payload", exact=True).fill("hello")
    dialog.get_by_label("Headers").fill('{"a": 1}')
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect_fact(page, "Ready", "1")
    (message,) = api.post(
        "queues/%2F/pages.new/get", json={"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    ).json()
    properties = message["properties"]
    assert (message["payload"], properties["headers"]["a"], properties["delivery_mode"]) == ("hello", 1, 2)
    row.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    assert api.get("queues/%2F/pages.new").status_code == 200
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert api.get("queues/%2F/pages.new").status_code == 404


def test_exchanges(log_in: LogIn, connection: pika.BlockingConnection, api: httpx.Client) -> None:
    page = log_in("exchanges")
    expect(page.get_by_role("row").filter(has_text="(default)")).to_contain_text("direct")
    page.get_by_role("row").filter(has_text="pages.x").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pages.x")
    expect_fact(page, "Published in total", "3")
    rows = page.get_by_role("grid", name="Bindings from this exchange").get_by_role("row")
    expect(rows.filter(has_text="pages.in")).to_contain_text("in.#")
    page.get_by_role("button", name="Publish", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Routing key").fill("out")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Published but not routed")).to_be_visible()
    page.goto(page.url.rpartition("/")[0] + "/")
    expect(page.get_by_role("heading", level=1)).to_have_text("(default)")
    expect(page.get_by_role("button", name="Delete", exact=True)).to_have_count(0)
    page.goto(page.url.partition("#")[0] + "#/exchanges")
    page.get_by_role("button", name="Add an exchange").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("pages.made")
    dialog.get_by_label("Type").select_option("fanout")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pages.made")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchanges")
    assert api.get("exchanges/%2F/pages.made").status_code == 404


def test_clients(log_in: LogIn, connection: pika.BlockingConnection, channel_name: str) -> None:
    page = log_in("connections")
    row = page.get_by_role("row").filter(has_text="the tester")
    expect(row).to_contain_text("running")
    row.click()
    expect_fact(page, "User", "guest")
    expect(page.get_by_role("grid", name="Channels").get_by_role("row").nth(1)).to_contain_text(channel_name)
    page.goto(page.url.partition("#")[0] + "#/channels")
    expect(page.get_by_role("row").filter(has_text=channel_name)).to_contain_text("confirms")
    page.goto(page.url.partition("#")[0] + f"#/channels/{quote(channel_name, safe='')}")
    expect_fact(page, "Prefetch of each consumer", "7")
    expect(page.get_by_role("grid", name="Consumers").get_by_role("row").nth(1)).to_contain_text("pages.out")


def test_a_connection_is_closed(log_in: LogIn, site: LeveretProcess) -> None:
    parameters = pika.URLParameters(site.url)
    parameters.client_properties = {"connection_name": "to be closed"}
    doomed = pika.BlockingConnection(parameters)
    page = log_in("connections")
    page.get_by_role("row").filter(has_text="to be closed").click()
    page.get_by_role("button", name="Close the connection").click()
    dialog = page.get_by_role("dialog", name="Close this connection?")
    dialog.get_by_label("Reason").fill("out of order")
    dialog.get_by_role("button", name="Close connection").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Connections")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="out of order"):
        doomed.channel()


def test_users_permissions_and_limits(log_in: LogIn, api: httpx.Client) -> None:
    page = log_in("users")
    page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("pages-user")
    dialog.get_by_label("Password").fill("päss:wörd")
    dialog.get_by_label("Tags").fill("management, mine")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pages-user")
    assert api.get("whoami", auth=httpx.BasicAuth(b"pages-user", "päss:wörd".encode())).json()["tags"] == [
        "management",
        "mine",
    ]
    expect(page.get_by_text("has no permissions in any virtual host")).to_be_visible()
    page.get_by_role("button", name="Set a permission").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Configure").fill("^mine-")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("grid", name="Permissions", exact=True).get_by_role("row").nth(1)).to_contain_text("^mine-")
    assert api.get("permissions/%2F/pages-user").json()["configure"] == "^mine-"
    page.get_by_role("button", name="Set a topic permission").click()
    page.get_by_role("dialog").get_by_label("Write").fill("^w")
    page.get_by_role("dialog").get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("grid", name="Topic permissions").get_by_role("row").nth(1)).to_contain_text("amq.topic")
    page.get_by_role("button", name="Set a limit").click()
    page.get_by_role("dialog").get_by_label("How many").fill("11")
    page.get_by_role("dialog").get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_role("grid", name="Limits of users").get_by_role("row").nth(1)).to_contain_text("11")
    page.get_by_role("button", name="Change tags or password").click()
    page.get_by_role("dialog").get_by_label("Tags").fill("monitoring")
    page.get_by_role("dialog").get_by_role("button", name="Change", exact=True).click()
    expect_fact(page, "Tags", "monitoring")
    assert api.get("whoami", auth=httpx.BasicAuth("pages-user", "päss:wörd".encode())).json()["tags"] == ["monitoring"]
    page.get_by_role("grid", name="Permissions", exact=True).get_by_role("button", name="Clear", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Clear", exact=True).click()
    expect(page.get_by_text("has no permissions in any virtual host")).to_be_visible()
    page.goto(page.url.partition("#")[0] + "#/limits")
    expect(
        page.get_by_role("grid", name="Limits of users").get_by_role("row").filter(has_text="pages-user")
    ).to_contain_text("11")
    page.goto(page.url.partition("#")[0] + "#/users/pages-user")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Users")
    assert api.get("users/pages-user").status_code == 404


@pytest.mark.parametrize(
    ("kind", "heading"), [("users/{}", "Users"), ("queues/%2F/{}", "Queues"), ("exchanges/%2F/{}", "Exchanges")]
)
def test_what_is_being_deleted_is_not_asked_for(log_in: LogIn, api: httpx.Client, kind: str, heading: str) -> None:
    """A poll on its way while its object is deleted would be told that it is missing. `watch` sees that as an error."""
    path = kind.format("pages-doomed")
    assert api.put(path, json={"tags": "", "password": "x"} if heading == "Users" else {}).status_code == 201
    page = log_in(path)
    expect(page.get_by_role("heading", level=1)).to_have_text("pages-doomed")
    expect(page.locator(".facts dd").first).to_be_visible()
    kept: list[Route] = []

    def keep(route: Route) -> None:
        if route.request.method == "GET":
            kept.append(route)
            return
        answer = route.fetch()
        for question in kept:
            with contextlib.suppress(PlaywrightError):  # nobody waits for its answer
                question.fulfill(response=question.fetch())
        route.fulfill(response=answer)

    page.route(f"**/api/{path}", keep)
    with page.expect_request(lambda request: request.method == "GET" and request.url.endswith(path)):
        page.keyboard.press("r")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    assert kept
    assert api.get(path).status_code == 404


def test_virtual_hosts(log_in: LogIn, api: httpx.Client) -> None:
    page = log_in("vhosts")
    page.get_by_role("button", name="Add a virtual host").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("pages/host")
    dialog.get_by_label("Description").fill("of the tests")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect_fact(page, "Description", "of the tests")
    assert api.get("vhosts/pages%2Fhost").json()["description"] == "of the tests"
    api.put("queues/pages%2Fhost/inside", json={})
    page.get_by_label("Virtual host", exact=True).select_option("pages/host")
    page.get_by_role("link", name="Queues").click()
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("row").nth(1)).to_contain_text("inside")
    for address, count in (("exchanges", 8), ("connections", 1), ("channels", 1), ("policies", 2)):
        page.goto(page.url.partition("#")[0] + f"#/{address}")
        expect(page.get_by_role("row")).to_have_count(count)
    page.goto(page.url.partition("#")[0] + "#/vhosts/pages%2Fhost")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_have_text("The name does not match.")
    dialog.get_by_label("Type pages/host to delete it").fill("pages/host")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Virtual hosts")
    assert api.get("vhosts/pages%2Fhost").status_code == 404
    expect(page.get_by_label("Virtual host", exact=True)).to_have_value("")


def test_policies(log_in: LogIn, api: httpx.Client, connection: pika.BlockingConnection, watch: Watch) -> None:
    watch.allowed += ["400 (Bad Request)"]
    page = log_in("policies")
    page.get_by_role("button", name="Add a policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("pages-policy")
    dialog.get_by_label("Pattern").fill("^pages\\.in$")
    dialog.get_by_label("Settings").fill('{"max-length": "x"}')
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text('<<"x">> is not a valid maximum length')
    dialog.get_by_label("Settings").fill('{"max-length": 99}')
    dialog.get_by_role("button", name="Add", exact=True).click()
    row = page.get_by_role("grid", name="Policies", exact=True).get_by_role("row").filter(has_text="pages-policy")
    expect(row).to_contain_text('{"max-length":99}')
    assert api.get("queues/%2F/pages.in").json()["policy"] == "pages-policy"
    row.get_by_role("button", name="Change", exact=True).click()
    page.get_by_role("dialog").get_by_label("Priority").fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Change", exact=True).click()
    expect(row.get_by_role("gridcell").nth(5)).to_have_text("3")
    assert api.get("policies/%2F/pages-policy").json()["priority"] == 3
    row.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    assert api.get("policies/%2F/pages-policy").status_code == 404
