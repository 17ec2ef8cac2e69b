// The limits of all virtual hosts and users.

import { h } from "../dom.js";
import { Limits } from "../limits.js";

export default function limits(view) {
  const both = [new Limits(view, "vhost"), new Limits(view, "user")];
  view.poll(async (signal) => { for (const each of both) await each.refresh(signal); }, { everyS: 30 });
  view.show(h("div", { class: "columns" }, both.map((each) => each.element)));
}
