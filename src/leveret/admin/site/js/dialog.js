// Dialogs, on <dialog>: the browser keeps the focus inside, Esc closes them, and it goes back to where it was.

import { h, uniqueId } from "./dom.js";

/** Show a dialog. body: nodes; buttons: [{label, kind, does}], does() may be async; false keeps it open. Resolves with the label of
 *  the button that closed it, or null. */
export function show(title, body, buttons, { wide = false, signal } = {}) {
  const id = uniqueId("dialog"), was = document.activeElement;
  return new Promise((resolve) => {
    let answer = null;
    const error = h("p", { class: "error", role: "alert", hidden: true });
    const press = async (button, each) => {
      error.hidden = true;
      button.disabled = true;
      try {
        if (await each.does?.() === false) return;
        answer = each.label;
        dialog.close();
      } catch (failure) {
        error.textContent = failure.message;
        error.hidden = false;
      } finally {
        button.disabled = false;
      }
    };
    const row = buttons.map((each) => h("button", {
      type: each.kind === "quiet" ? "button" : "submit", class: `button ${each.kind ?? ""}`, value: each.label,
      onclick: (event) => {
        if (each.kind === "quiet") return press(event.currentTarget, each);
        if (!form.reportValidity()) return undefined;
        event.preventDefault();
        return press(event.currentTarget, each);
      },
    }, each.label));
    const form = h("form", { class: "dialog-form", novalidate: true, onsubmit: (event) => event.preventDefault() },
      h("h2", { id }, title), h("div", { class: "dialog-body" }, body), error, h("div", { class: "dialog-buttons" }, row));
    const dialog = h("dialog", {
      class: wide ? "dialog wide" : "dialog", aria: { labelledby: id },
      onclose: () => {
        dialog.remove();
        was?.focus?.();
        resolve(answer);
      },
      onclick: (event) => { if (event.target === dialog) dialog.close(); },
    }, form);
    signal?.addEventListener("abort", () => dialog.close());
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("[autofocus], .dialog-body input, .dialog-body select, .dialog-body textarea") ?? form.querySelector("button")).focus();
  });
}

/** Ask before something that can't be undone; does() is what is done then. Whether it was done. */
export async function confirm(title, text, label, does, { kind = "danger", signal } = {}) {
  const said = await show(title, [text].flat().map((each) => h("p", null, each)),
    [{ label: "Cancel", kind: "quiet" }, { label, kind, does }], { signal });
  return said === label;
}

/** Say something for a moment, at the edge of the window. */
export function notify(text, kind = "good") {
  const corner = document.querySelector(".notices") ?? document.body.appendChild(h("div", { class: "notices", role: "status", aria: { live: "polite" } }));
  const notice = h("p", { class: `notice ${kind}` }, text);
  corner.append(notice);
  setTimeout(() => notice.remove(), 6000);
}
