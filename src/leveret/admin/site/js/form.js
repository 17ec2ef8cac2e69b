// Forms from a list of fields, so that each has its label, and what is wrong is said at the field.

import { h, uniqueId } from "./dom.js";
import { show } from "./dialog.js";

// kind -> [the element's tag, its attributes, what is sent of it]
const KINDS = {
  text: ["input", { type: "text", autocomplete: "off", spellcheck: "false" }, (element) => element.value],
  password: ["input", { type: "password", autocomplete: "new-password" }, (element) => element.value],
  number: ["input", { type: "number", step: "1" }, (element) => (element.value === "" ? null : Number(element.value))],
  lines: ["textarea", { rows: "5", spellcheck: "false" }, (element) => element.value],
  json: ["textarea", { rows: "4", spellcheck: "false", class: "code" }, parsed],
  check: ["input", { type: "checkbox" }, (element) => element.checked],
  choice: ["select", {}, (element) => element.value],
};

function parsed(element) {
  if (element.value.trim() === "") return {};
  try {
    const found = JSON.parse(element.value);
    if (found !== null && typeof found === "object" && !Array.isArray(found)) return found;
  } catch { /* said below */ }
  element.setCustomValidity('This must be a JSON object, as {"x-max-length": 1000}.');
  element.reportValidity();
  element.addEventListener("input", () => element.setCustomValidity(""), { once: true });
  throw new Error('not a JSON object; one looks like {"x-max-length": 1000}');
}

/** fields: [{name, label, kind, value, required, hint, options: [[value, label]], …attributes}]. Has element, values(), field(name). */
export class Form {
  constructor(fields) {
    this.elements = new Map();
    this.kinds = new Map();
    this.element = h("div", { class: "fields" }, fields.filter(Boolean).map((field) => this.make(field)));
  }

  make({ name, label, kind = "text", value = "", hint, options = [], ...attributes }) {
    const id = uniqueId(name), [tag, usual] = KINDS[kind];
    const element = h(tag, { ...usual, ...attributes, id, name, ...(hint ? { "aria-describedby": `${id}-hint` } : {}) });
    for (const [each, text] of options.map((option) => [option].flat())) element.append(h("option", { value: each }, text ?? each));
    if (kind === "check") element.checked = Boolean(value);
    else if (kind === "json") element.value = typeof value === "string" ? value : JSON.stringify(value, null, 1);
    else if (value !== "" && value !== null) element.value = value;
    this.elements.set(name, element);
    this.kinds.set(name, kind);
    return h("div", { class: `field ${kind}` }, h("label", { for: id }, label), element,
      hint && h("p", { class: "hint", id: `${id}-hint` }, hint));
  }

  field(name) {
    return this.elements.get(name);
  }

  /** What has been said, by name. Error if something is no JSON that must be. */
  values() {
    return Object.fromEntries([...this.elements].map(([name, element]) => [name, KINDS[this.kinds.get(name)][2](element)]));
  }
}

/** A dialog with a form; does(values) is what its button does. Whether it was done. */
export async function ask(title, fields, label, does, { text = [], kind = "", wide = false } = {}) {
  const form = new Form(fields);
  const body = [...[text].flat().map((each) => h("p", null, each)), form.element];
  return await show(title, body, [{ label: "Cancel", kind: "quiet" }, { label, kind, does: () => does(form.values()) }], { wide }) === label;
}
