// The form that asks who it is.

import { h, svg } from "./dom.js";
import { logIn } from "./session.js";

/** The mark of the house: a young hare's head. */
export function mark() {
  return svg(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true" },
    svg("rect", { width: 32, height: 32, rx: 8 }),
    svg("path", {
      d: "M11 4c2.6 0 4.2 4.4 4.6 9h.8c.4-4.600 2-9 4.600-9 2.900 0 2.800 6.400.5 10.900A8.200 8.200 0 0 1 16 28a8.200 8.200 0 0 1-5.500-13.100C8.200 10.400 8.100 4 11 4Z",
    }),
  );
}

/** Show it; done(user) when somebody has logged in. said: why it is shown again. */
export function showLogin(root, done, said = "") {
  const name = h("input", {
    id: "login-name",
    name: "username",
    autocomplete: "username",
    autocapitalize: "off",
    spellcheck: "false",
    required: true,
  });
  const password = h("input", {
    id: "login-password",
    name: "password",
    type: "password",
    autocomplete: "current-password",
  });
  const error = h("p", { class: "error", role: "alert" }, said);
  const send = h("button", { class: "button primary", type: "submit" }, "Log in");
  const form = h(
    "form",
    {
      class: "login",
      novalidate: true,
      onsubmit: async (event) => {
        event.preventDefault();
        send.disabled = true;
        error.textContent = "";
        try {
          done(await logIn(name.value, password.value));
        } catch (failure) {
          error.textContent =
            failure.status !== 401
              ? `Can't log in: ${failure.message}.`
              : failure.message === "Login failed"
                ? "Login failed: wrong user name or password."
                : failure.message === "Not management user"
                  ? "This user needs one of the tags management, policymaker, monitoring or administrator."
                  : `${failure.message}.`;
          password.select();
        } finally {
          send.disabled = false;
        }
      },
    },
    h("div", { class: "brand" }, mark(), h("h1", null, "leveret")),
    h("div", { class: "field" }, h("label", { for: "login-name" }, "User"), name),
    h("div", { class: "field" }, h("label", { for: "login-password" }, "Password"), password),
    error,
    send,
  );
  root.replaceChildren(h("main", { class: "login-page" }, form));
  document.title = "Log in · leveret";
  name.focus();
}
