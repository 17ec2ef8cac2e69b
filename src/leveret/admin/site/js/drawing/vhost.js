// Pages that are about one virtual host: the one that is chosen in the head, or, where all are, one that is chosen here.

import { get } from "../api.js";
import { fill, h, uniqueId } from "../dom.js";
import { visible } from "../format.js";

/** Calls shown(vhost) at once, and when another one is chosen. Gives the choice as an element, or null where the head has chosen. */
export function oneVhost(view, shown) {
  const chosen = view.vhost ?? view.query.get("vhost") ?? "/";
  queueMicrotask(() => shown(chosen));
  if (view.vhost !== null) return null;
  const id = uniqueId("vhost"), select = h("select", { id, onchange: () => {
    view.setQuery({ vhost: select.value });
    shown(select.value);
  } }, h("option", { value: chosen }, visible(chosen)));
  get("vhosts", { query: { columns: "name" }, signal: view.signal }).then((found) => {
    fill(select, found.map(({ name }) => h("option", { value: name }, visible(name))));
    select.value = chosen;
  }, () => {}); // the one that is shown stays the only choice
  return h("div", { class: "choose" }, h("label", { for: id }, "Virtual host"), select);
}
