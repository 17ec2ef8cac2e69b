// The frame around the pages: navigation, the choices that hold for all pages, and what is wrong with the broker.

import { get, health } from "./api.js";
import { fill, h } from "./dom.js";
import { all as allKeys, bind } from "./keys.js";
import { mark } from "./login.js";
import { show } from "./dialog.js";
import { GROUPS, PAGES, refusalOf } from "./pages.js";
import { INTERVALS_S, pace } from "./poll.js";
import { go, resolve } from "./router.js";
import { currentTheme, nextTheme } from "./theme.js";
import { visible } from "./format.js";
import { View, badge } from "./view.js";

const VHOST = "leveret.vhost";
const THEMES = { system: "◐", light: "☀", dark: "☾" };

export class Shell {
  /** root: the body; loggedOut(): what happens then. */
  constructor(root, user, loggedOut) {
    Object.assign(this, { root, user, loggedOut });
    this.vhost = sessionStorage.getItem(VHOST);
    this.left = new AbortController();
    this.view = null;
    this.failure = null;
    this.build();
    this.bindKeys();
    const { signal } = this.left;
    addEventListener("hashchange", () => this.open(), { signal });
    health.addEventListener("change", (event) => this.setGone(event.detail.gone), { signal });
    health.addEventListener(
      "unauthorised",
      () => this.logOut("You are logged out: the broker no longer accepts this user name and password."),
      { signal },
    );
    document.addEventListener("vhostschange", () => this.loadVhosts(), { signal });
    this.loadVhosts();
    this.open();
  }

  // -- the frame

  build() {
    const { user } = this;
    this.links = new Map();
    const groups = GROUPS.map((group) => {
      const pages = PAGES.filter((page) => page.group === group && !refusalOf(page, user));
      return pages.length
        ? h(
            "li",
            null,
            h("h2", { class: "nav-group" }, group),
            h(
              "ul",
              null,
              pages.map((page) => this.entry(page)),
            ),
          )
        : null;
    });
    this.nav = h(
      "nav",
      { id: "nav", class: "nav", "aria-label": "Pages" },
      h("a", { class: "brand", href: "#/" }, mark(), h("span", null, "leveret")),
      h("ul", { class: "nav-groups" }, groups),
      h(
        "p",
        { class: "nav-foot" },
        h("a", { href: "api/index.html" }, "HTTP API"),
        " · ",
        h("button", { class: "link", onclick: () => this.showKeys() }, "Keys"),
      ),
    );
    this.menu = h(
      "button",
      {
        class: "icon menu",
        "aria-label": "Pages",
        "aria-expanded": "false",
        "aria-controls": "nav",
        onclick: () => this.toggleMenu(),
      },
      "☰",
    );
    this.heading = h("h1", { tabindex: "-1" });
    this.above = h("span", { class: "above" });
    this.vhosts = h("select", {
      id: "vhost",
      "aria-label": "Virtual host",
      onchange: () => this.chooseVhost(this.vhosts.value),
    });
    this.bar = h("div", { class: "bar", role: "alert", hidden: true });
    this.main = h("main", { id: "main", class: "page" });
    const scrim = h("div", { class: "scrim", onclick: () => this.toggleMenu(false) });
    fill(
      this.root,
      h(
        "a",
        {
          class: "skip",
          href: "#main",
          onclick: (event) => {
            event.preventDefault();
            this.heading.focus();
          },
        },
        "Skip to the page",
      ),
      h(
        "div",
        { class: "shell" },
        this.nav,
        scrim,
        h(
          "div",
          { class: "stage" },
          h(
            "header",
            { class: "top" },
            this.menu,
            h("div", { class: "where" }, this.above, this.heading),
            this.choices(),
          ),
          this.bar,
          this.main,
        ),
      ),
    );
  }

  entry(page) {
    const link = h(
      "a",
      { href: `#/${page.path}`, onclick: () => this.toggleMenu(false), title: page.key ? `g ${page.key}` : null },
      page.title,
    );
    this.links.set(page.path, link);
    return h("li", null, link);
  }

  choices() {
    const interval = h(
      "select",
      { id: "interval", "aria-label": "Refresh", onchange: () => pace.set(Number(interval.value)) },
      INTERVALS_S.map((each) => h("option", { value: each }, `every ${each} s`)),
    );
    interval.value = String(pace.intervalS);
    this.pauser = h("button", { class: "icon", onclick: () => this.pause() });
    this.themer = h("button", { class: "icon", onclick: () => this.theme() });
    this.say();
    return h(
      "div",
      { class: "choices" },
      h("label", { class: "choice", for: "vhost" }, h("span", null, "Virtual host"), this.vhosts),
      h("label", { class: "choice", for: "interval" }, h("span", null, "Refresh"), interval),
      this.pauser,
      this.themer,
      h(
        "div",
        { class: "who" },
        h("span", { title: this.user.tags.join(", ") }, visible(this.user.name)),
        h("button", { class: "link", onclick: () => this.logOut() }, "Log out"),
      ),
    );
  }

  say() {
    const theme = currentTheme(),
      pause = pace.isPaused ? "Resume refreshing" : "Pause";
    fill(this.pauser, pace.isPaused ? "▶" : "❚❚");
    for (const [name, value] of [
      ["aria-label", pause],
      ["title", `${pause} (p)`],
      ["aria-pressed", pace.isPaused],
    ])
      this.pauser.setAttribute(name, value);
    fill(this.themer, THEMES[theme]);
    for (const name of ["aria-label", "title"]) this.themer.setAttribute(name, `Colours: ${theme} (t)`);
  }

  pause() {
    pace.pause(!pace.isPaused);
    this.say();
  }
  theme() {
    nextTheme();
    this.say();
  }

  toggleMenu(isOpen = !document.body.classList.contains("menu-open")) {
    document.body.classList.toggle("menu-open", isOpen);
    this.menu.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.nav.querySelector("a").focus();
  }

  // -- virtual hosts

  async loadVhosts() {
    try {
      const found = (await get("vhosts", { query: { columns: "name", sort: "name" }, signal: this.left.signal })).map(
        (each) => each.name,
      );
      if (this.vhost !== null && !found.includes(this.vhost)) this.vhost = null;
      fill(
        this.vhosts,
        h("option", { value: "" }, "all"),
        found.map((each) => h("option", { value: `=${each}` }, visible(each))),
      );
      this.vhosts.value = this.vhost === null ? "" : `=${this.vhost}`;
      this.names = found;
    } catch (error) {
      if (error.name !== "AbortError") fill(this.vhosts, h("option", { value: "" }, "all"));
    }
  }

  chooseVhost(value) {
    this.vhost = value === "" ? null : value.slice(1);
    if (this.vhost === null) sessionStorage.removeItem(VHOST);
    else sessionStorage.setItem(VHOST, this.vhost);
    this.open();
  }

  // -- pages

  async open() {
    this.view?.leave();
    this.setFailure(null);
    this.toggleMenu(false);
    if (/^#?\/?$/.test(location.hash)) {
      history.replaceState(null, "", `#/${PAGES[0].path}`);
    }
    const found = resolve(location.hash);
    const root = h("div", { class: "page-root" });
    fill(this.main, root);
    this.main.scrollTop = 0;
    const view = (this.view = new View({
      root,
      params: found?.params ?? {},
      noun: found?.page.noun && `This ${found.page.noun}`,
      query: found?.query ?? new URLSearchParams(),
      user: this.user,
      vhost: this.vhost,
      told: (error) => {
        if (this.view === view) this.setFailure(error);
      },
      titled: (text, above) => this.setTitle(text, above),
      replaced: (query) =>
        history.replaceState(null, "", `${location.hash.split("?")[0]}${query.size ? `?${query}` : ""}`),
    }));
    for (const [path, link] of this.links) {
      if (found && (found.page.of ?? found.page.path) === path) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (!found) return this.refuse(view, "This page does not exist.");
    view.title(found.page.title);
    const why = refusalOf(found.page, this.user);
    if (why) return this.refuse(view, why);
    try {
      const { default: page } = await found.page.module();
      if (this.view === view) await page(view);
    } catch (error) {
      if (view.signal.aborted || error.name === "AbortError") return undefined;
      if (error.status === undefined) console.error(error);
      this.refuse(
        view,
        error.status === undefined
          ? "This page could not be loaded. If the broker has been updated, reload the window."
          : error.message,
      );
    }
    return undefined;
  }

  refuse(view, text) {
    view.show(h("p", { class: "empty" }, text));
  }

  setTitle(text, above = []) {
    fill(
      this.above,
      above.map(([said, address]) => [h("a", { href: address }, said), h("span", { "aria-hidden": "true" }, " / ")]),
    );
    fill(this.heading, text);
    this.heading.title = text;
    document.title = `${text} · leveret`;
  }

  // -- what is wrong

  setGone(isGone) {
    this.isGone = isGone;
    this.sayFailure();
  }

  setFailure(error) {
    this.failure = error;
    this.sayFailure();
  }

  sayFailure() {
    const { failure } = this,
      isGone = this.isGone && (failure === null || failure.isGone);
    this.bar.hidden = !isGone && failure === null;
    this.bar.className = isGone ? "bar bad" : "bar warn";
    if (isGone)
      fill(
        this.bar,
        badge("reconnecting", "bad"),
        " The broker does not answer. The data shown may be outdated; this page reconnects automatically.",
      );
    else if (failure)
      fill(this.bar, failure.status === 404 ? `${this.view?.noun ?? "This virtual host"} ${this.view?.hasAnswer ? "no longer exists" : "does not exist"}.` : `The broker reports: ${failure.message}`);
  }

  // -- keys

  bindKeys() {
    const { signal } = this.left;
    bind("/", "filter", () => this.main.querySelector(".filter")?.focus(), signal);
    bind("?", "this list", () => this.showKeys(), signal);
    bind("p", "pause or resume", () => this.pause(), signal);
    bind("t", "light, dark or system colours", () => this.theme(), signal);
    bind("r", "refresh now", () => pace.dispatchEvent(new Event("now")), signal);
    for (const page of PAGES)
      if (page.key && !refusalOf(page, this.user))
        bind(`g ${page.key}`, page.title, () => go(`#/${page.path}`), signal);
  }

  showKeys() {
    const more = [
      ["↑ ↓ Page Home End", "move in a table"],
      ["Enter", "open the row"],
      ["Esc", "close a dialog, clear the filter"],
    ];
    const rows = [...allKeys(), ...more].map(([key, says]) =>
      h(
        "div",
        null,
        h(
          "dt",
          null,
          key.split(" ").map((each) => h("kbd", null, each)),
        ),
        h("dd", null, says),
      ),
    );
    show("Keys", h("dl", { class: "keys" }, rows), [{ label: "Close", kind: "quiet" }]);
  }

  logOut(said = "") {
    this.view?.leave();
    this.left.abort();
    sessionStorage.removeItem(VHOST);
    this.loggedOut(said);
  }
}
