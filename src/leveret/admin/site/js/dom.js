// Elements from values. Text is only ever set as text, so no name can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. props: on… are listeners, class is the class list, dataset and aria are objects, true/false set or leave out
 *  an attribute, everything else is one. children: nodes, texts, numbers, lists of these; null and false are nothing. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "aria") for (const [each, said] of Object.entries(value)) element.setAttribute(`aria-${each}`, String(said));
    else if (name === "style") for (const [each, said] of Object.entries(value)) element.style.setProperty(each, said);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

function put(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Put these in place of what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

/** Set an element's text, if it is another one: an unchanged text keeps its selection. */
export function setText(element, text) {
  const said = String(text);
  if (element.textContent !== said) element.textContent = said;
}

let numbers = 0;
/** An id that no other element has. */
export function uniqueId(prefix = "id") {
  numbers += 1;
  return `${prefix}-${numbers}`;
}
