// A virtual host on one page: exchanges, queues, and what leads from one to the other.

import { h, fill } from "../dom.js";
import { Bound } from "../drawing/bound.js";
import { oneVhost } from "../drawing/vhost.js";

export default function topology(view) {
  let bound = null;
  const place = h("div", { class: "drawing-page" });
  const choice = oneVhost(view, (vhost) => {
    bound = new Bound(view, { vhost });
    fill(place, bound.element);
    poll.now();
  });
  view.show(choice, place);
  const poll = view.poll((signal) => bound?.refresh(signal));
}
