"""What holds for all pages: login, permissions, names of any kind, keyboard, colours, phones, a broker that stops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS
from .conftest import LogIn, Watch, serving

# a valid AMQP name that pages must not use as markup, path or query string
HOSTILE = (
    "<script>window.hit=1</script>",
    '"><img src=x onerror=window.hit=1>',
    "a%2Fb/c?d=e#f&g",
    "tab\tand\u0007bell",
    "été 兎 🐇",
    "\u202edrawkcab",
    " ",
    "{{7*7}}${7*7}",
    "x" * 255,
)
ALL = ("overview", "queues", "exchanges", "connections", "channels", "policies", "limits", "users", "vhosts")
DETAILS = ("queues/%2F/house.q", "exchanges/%2F/amq.topic", "users/guest", "vhosts/%2F")


@pytest.fixture(scope="module", autouse=True)
def queue(api: httpx.Client) -> None:
    api.put("queues/%2F/house.q", json={"durable": True})


# -- logging in --------------------------------------------------------------------------------------------------------


def test_wrong_passwords_and_users(
    page: Page, log_in: LogIn, site: LeveretProcess, watch: Watch, api: httpx.Client
) -> None:
    watch.allowed += ["401 (Unauthorized)"]
    api.put("users/house-none", json={"password": "secret", "tags": ""})
    page.goto(site.admin_url)
    for user, password, said in (("guest", "wrong", "Login failed"), ("house-none", "secret", "needs one of the tags")):
        page.get_by_label("User").fill(user)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text(said)
    expect(page.get_by_role("navigation")).to_have_count(0)
    log_in("queues")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")


def test_the_credential_is_the_tabs_and_ends_with_it(log_in: LogIn, watch: Watch) -> None:
    page = log_in("queues")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert page.context.cookies() == []
    assert "Z3Vlc3Q6" not in page.evaluate("JSON.stringify(localStorage)")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    before = len(watch.asked("/api/"))
    page.reload()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert len(watch.asked("/api/")) == before
    assert not [request for request in watch.requests if "guest:guest" in request.url or "password" in request.url]


def test_who_is_deleted_is_logged_out(log_in: LogIn, api: httpx.Client, watch: Watch) -> None:
    watch.allowed += ["401 (Unauthorized)"]
    api.put("users/house-gone", json={"password": "secret", "tags": "monitoring"})
    page = log_in("overview", user="house-gone", password="secret")
    page.get_by_label("Refresh", exact=True).select_option("1")
    api.delete("users/house-gone")
    expect(page.get_by_role("alert")).to_contain_text("You are logged out")


# -- permissions -------------------------------------------------------------------------------------------------------


def test_management_sees_no_more_than_he_may(log_in: LogIn, users: dict[str, str]) -> None:
    page = log_in("overview", user=users["management"], password="secret")
    expect(page.get_by_text("require the monitoring or administrator tag")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Users")).to_have_count(0)
    expect(page.get_by_role("navigation").get_by_role("link", name="Limits")).to_have_count(0)
    base = page.url.partition("#")[0]
    page.goto(f"{base}#/users")
    expect(page.get_by_text("This page requires the administrator tag.")).to_be_visible()
    page.goto(f"{base}#/policies")
    expect(page.get_by_text("requires the policymaker")).to_be_visible()
    expect(page.get_by_role("button", name="Add a policy")).to_have_count(0)
    page.goto(f"{base}#/vhosts")
    expect(page.get_by_role("row").nth(1)).to_contain_text("/")
    expect(page.get_by_role("button", name="Add a virtual host")).to_have_count(0)
    page.goto(f"{base}#/connections")
    expect(page.get_by_text("You have no connections.")).to_be_visible()


def test_policymakers_change_policies_but_not_operators(log_in: LogIn, users: dict[str, str]) -> None:
    page = log_in("policies", user=users["policymaker"], password="secret")
    expect(page.get_by_role("button", name="Add a policy")).to_be_visible()
    expect(page.get_by_role("button", name="Add an operator policy")).to_have_count(0)


def test_monitors_see_the_node(log_in: LogIn, users: dict[str, str]) -> None:
    page = log_in("overview", user=users["monitoring"], password="secret")
    expect(page.get_by_text("Open files")).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Users")).to_have_count(0)
    expect(page.get_by_role("navigation").get_by_role("link", name="Limits")).to_be_visible()


def test_what_the_broker_refuses_is_said(log_in: LogIn, api: httpx.Client, watch: Watch) -> None:
    watch.allowed += ["401 (Unauthorized)"]
    api.put("users/house-reader", json={"password": "secret", "tags": "management"})
    api.put("permissions/%2F/house-reader", json={"configure": "", "write": "", "read": ".*"})
    page = log_in("queues/%2F/house.q", user="house-reader", password="secret")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("refused")
    assert api.get("queues/%2F/house.q").status_code == 200


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_of_any_kind(log_in: LogIn, api: httpx.Client) -> None:
    for name in HOSTILE:
        path = quote(name, safe="")
        assert api.put(f"queues/%2F/{path}", json={}).status_code == 201
        assert api.put(f"exchanges/%2F/{path}", json={"type": "topic"}).status_code == 201
        binding = {"routing_key": f"\n{name}"[:255], "arguments": {name[:20]: name}}
        assert api.post(f"bindings/%2F/e/{path}/q/{path}", json=binding).status_code == 201
    page = log_in("queues")
    base = page.url.partition("#")[0]
    for name in HOSTILE:
        for kind in ("queues", "exchanges"):
            page.goto(f"{base}#/{kind}/%2F/{quote(name, safe='')}")
            table = "Bindings to this queue" if kind == "queues" else "Bindings from this exchange"
            rows = page.get_by_role("grid", name=table).get_by_role("row")
            expect(rows).to_have_count(3 if kind == "queues" else 2)
    page.goto(f"{base}#/queues?name={quote('<script>')}")
    expect(page.get_by_role("row").nth(1).get_by_role("link")).to_have_text(HOSTILE[0])
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE[0])
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert api.get(f"queues/%2F/{quote(HOSTILE[0], safe='')}").status_code == 404
    page.goto(f"{base}#/queues/%2F/..")
    expect(page.get_by_text("a browser cannot request an object named")).to_be_visible()
    assert page.evaluate("window.hit") is None
    for name in HOSTILE:
        api.delete(f"queues/%2F/{quote(name, safe='')}")
        api.delete(f"exchanges/%2F/{quote(name, safe='')}")


def test_nothing_is_ever_taken_for_html(log_in: LogIn, watch: Watch) -> None:
    """The browser itself refuses scripts other than the page's own files, and text as markup."""
    watch.allowed += ["Content Security Policy", "TrustedHTML", "Content-Security-Policy"]
    page = log_in("queues")
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; } }"
    )
    assert refused == "TypeError"
    page.evaluate(
        "() => { const style = document.createElement('style'); style.textContent = 'body { display: none }';"
        " document.head.append(style); }"
    )
    expect(page.get_by_role("heading", level=1)).to_be_visible()


# -- keyboard ----------------------------------------------------------------------------------------------------------


def test_the_keyboard(log_in: LogIn) -> None:
    page = log_in("overview")
    expect(page.locator(".tiles b").first).not_to_have_text("–")
    page.keyboard.press("g")
    page.keyboard.press("e")
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchanges")
    filter_ = page.get_by_label("Filter Exchanges")
    expect(filter_).to_be_visible()
    page.keyboard.press("/")
    expect(filter_).to_be_focused()
    page.keyboard.type("amq.t")
    expect(page.get_by_role("row")).to_have_count(2)
    page.keyboard.press("ArrowDown")
    grid = page.get_by_role("grid", name="Exchanges")
    expect(grid).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("row").nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("amq.topic")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("Exchanges")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    publish = page.get_by_role("button", name="Publish", exact=True)
    publish.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(publish).to_be_focused()


# the focused element: whether it is one of the page's controls, how it is outlined, whether there is none
FOCUSED = """() => {
  const element = document.activeElement, isControl = element.matches('main :is(button, a.button, [role=grid])');
  return [isControl, getComputedStyle(element).outlineStyle, element === document.body];
}"""


def test_every_control_is_reached_and_seen(log_in: LogIn) -> None:
    """Tab visits all controls in a circle, and the focus is visible everywhere."""
    page = log_in("queues/%2F/house.q")
    expect(page.locator(".facts dd").first).to_be_visible()
    wanted = page.locator("main button:visible, main a.button:visible, main [role=grid]:visible").count()
    page.get_by_role("button", name="Log out").focus()
    seen = 0
    for _ in range(60):
        page.keyboard.press("Tab")
        here = page.evaluate(FOCUSED)
        seen += here[0]
        assert here[2] or here[1] != "none", page.evaluate("document.activeElement.outerHTML")
        if seen == wanted:
            break
    assert seen == wanted


# -- appearance --------------------------------------------------------------------------------------------------------

# the contrast of each text with its background, as WCAG 2 computes it; returns those below 4.5 (large text: 3)
CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((each) => each / 255);
  };
  const linear = (part) => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
  const light = ([red, green, blue]) => .2126 * linear(red) + .7152 * linear(green) + .0722 * linear(blue);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] > .99) return found;
    }
    return [1, 1, 1, 1];
  };
  const bad = [];
  for (const element of document.body.querySelectorAll('*')) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!hasText || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest('option, .uplot, :disabled, .waiting')) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const [one, other] = [light(rgba(style.color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + .05) / (other + .05);
    const least = size >= 24 || (size >= 18.6 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < least) bad.push(`${ratio.toFixed(2)} ${element.className} ${element.textContent.slice(0, 30)}`);
  }
  return bad;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours(page: Page, log_in: LogIn, scheme: Literal["light", "dark"]) -> None:
    """As the system's setting says; all text has the contrast of WCAG AA."""
    page.emulate_media(color_scheme=scheme)
    log_in("overview")
    base = page.url.partition("#")[0]
    for address in (*ALL, *DETAILS):
        page.goto(f"{base}#/{address}")
        expect(page.locator(".page-root > *:visible").first).to_be_visible()
        assert page.evaluate(CONTRAST) == [], address
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(18, 22, 23)") == (scheme == "dark")


def test_the_readers_choice_of_colours(log_in: LogIn) -> None:
    page = log_in("queues")
    for choice in ("light", "dark", "system"):
        page.keyboard.press("t")
        expect(page.get_by_role("button", name=f"Colours: {choice}")).to_be_visible()
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 23)"
        assert dark == (choice == "dark")
    page.keyboard.press("t")
    page.keyboard.press("t")
    page.reload()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()


def test_on_a_phone(page: Page, log_in: LogIn) -> None:
    """No page scrolls sideways; the navigation opens and closes; tables keep the names."""
    page.set_viewport_size({"width": 360, "height": 740})
    log_in("queues")
    base = page.url.partition("#")[0]
    for address in (*ALL, *DETAILS):
        page.goto(f"{base}#/{address}")
        expect(page.locator(".page-root > *:visible").first).to_be_visible()
        for part in ("document.documentElement", "document.querySelector('.page')"):
            assert page.evaluate(f"{part}.scrollWidth - {part}.clientWidth") <= 0, address
    page.goto(f"{base}#/queues?name=house.q")
    expect(page.get_by_role("row").nth(1)).to_contain_text("house.q")
    assert page.get_by_role("row").nth(1).bounding_box()["width"] <= 360  # type: ignore[index]
    expect(page.get_by_role("link", name="Exchanges")).to_have_count(0)
    page.get_by_role("button", name="Pages").click()
    page.get_by_role("link", name="Exchanges").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchanges")
    expect(page.get_by_role("link", name="Policies")).to_have_count(0)


# -- polling, and a broker that does not answer ------------------------------------------------------------------------


def ask_again(page: Page, watch: Watch) -> None:
    """Advance the page's clock until it polls. In small steps: a page polls less often after a slow answer."""
    asked = len(watch.asked("/api/queues"))
    while len(watch.asked("/api/queues")) == asked:
        page.clock.run_for(250)


def test_pause_and_hidden_tabs_ask_nothing(page: Page, log_in: LogIn, watch: Watch) -> None:
    page.clock.install()
    log_in("queues")
    expect(page.get_by_role("row").filter(has_text="house.q")).to_be_visible()
    asked = len(watch.asked("/api/queues"))
    ask_again(page, watch)
    expect(page.locator(".count")).not_to_have_text("…")
    page.keyboard.press("p")
    page.clock.run_for(60_000)
    assert len(watch.asked("/api/queues")) == asked + 1
    page.keyboard.press("p")
    ask_again(page, watch)
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    asked = len(watch.asked("/api/queues"))
    page.clock.run_for(60_000)
    assert len(watch.asked("/api/queues")) == asked
    page.evaluate("() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); }")
    ask_again(page, watch)


def test_one_question_at_a_time(page: Page, log_in: LogIn, watch: Watch) -> None:
    """A slow answer is awaited; actions of the reader meanwhile cause one request afterwards."""
    log_in("queues")
    expect(page.get_by_role("row").filter(has_text="house.q")).to_be_visible()
    held: list[Route] = []
    page.route("**/api/queues?*", lambda route: route.continue_() if held else held.append(route))
    with page.expect_request("**/api/queues?*"):
        page.keyboard.press("r")
    asked = len(watch.asked("/api/queues"))
    page.keyboard.press("r")
    page.get_by_label("Filter Queues").fill("house")
    expect(page).to_have_url(re.compile("name=house"))
    assert len(watch.asked("/api/queues")) == asked
    with page.expect_request("**/api/queues?*name=house*"):
        held[0].continue_()
    expect(page.get_by_role("row")).to_have_count(2)


def set_limit(page: Page) -> None:
    page.get_by_role("button", name="Set a limit").last.click()
    page.get_by_role("dialog").get_by_label("User").fill("guest")
    page.get_by_role("dialog").get_by_role("button", name="Set", exact=True).click()


def test_a_page_is_left_before_it_has_seen_its_change(page: Page, log_in: LogIn, api: httpx.Client) -> None:
    """Its pending requests are aborted, which is not an error."""
    with page.expect_response("**/api/user-limits"):
        log_in("limits")
    held: list[Route] = []
    page.route("**/api/user-limits", lambda route: held.append(route))  # noqa: PLW0108 (Playwright sets an attribute)
    with page.expect_request("**/api/user-limits"):
        set_limit(page)
    with page.expect_event("requestfailed"):
        page.get_by_role("link", name="Queues").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert [route.request.failure for route in held] == ["net::ERR_ABORTED"]
    assert api.delete("user-limits/guest/max-connections").status_code == 204


def test_what_a_change_came_to_can_not_be_seen(page: Page, log_in: LogIn, watch: Watch, api: httpx.Client) -> None:
    """The change is made, and the page says why it does not show it."""
    with page.expect_response("**/api/user-limits"):
        log_in("limits")
    watch.allowed.append("status of 500")
    answer = {"error": "internal_error", "reason": "not now"}
    page.route("**/api/user-limits", lambda route: route.fulfill(status=500, json=answer))
    set_limit(page)
    expect(page.get_by_role("alert").filter(has_text="The broker reports: not now")).to_be_visible()
    assert api.delete("user-limits/guest/max-connections").status_code == 204


@pytest.fixture
def own_site() -> Iterator[LeveretProcess]:
    with LeveretProcess(admin=True) as process:
        yield serving(process)


def test_a_broker_that_goes_and_comes(chromium: Browser, own_site: LeveretProcess) -> None:
    """The page shows it, and recovers by itself."""
    api = httpx.Client(base_url=f"{own_site.admin_url}/api/", auth=("guest", "guest"), verify=NO_TLS)
    api.put("queues/%2F/before", json={"durable": True})
    page = chromium.new_page()
    page.goto(f"{own_site.admin_url}/#/queues")
    page.get_by_label("User").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("Refresh", exact=True).select_option("1")
    expect(page.get_by_role("row").filter(has_text="before")).to_be_visible()
    own_site.kill()
    expect(page.get_by_role("alert")).to_contain_text("reconnecting")
    expect(page.get_by_role("row").filter(has_text="before")).to_be_visible()
    own_site.start()
    serving(own_site)
    api.put("queues/%2F/behind", json={"durable": True})
    expect(page.get_by_role("row").filter(has_text="behind")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="reconnecting")).to_be_hidden()
    page.close()
    api.close()
