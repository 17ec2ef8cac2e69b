// One virtual host: what is in it, who may enter, its limits.

import { del, get, path, put } from "../api.js";
import { notify, show } from "../dialog.js";
import { h } from "../dom.js";
import { ask, Form } from "../form.js";
import { number, octets, visible } from "../format.js";
import { Limits } from "../limits.js";
import { Permissions } from "../permissions.js";
import { go } from "../router.js";
import { Facts, button, panel } from "../view.js";

export default function vhost(view) {
  const { name } = view.params,
    where = path`vhosts/${name}`,
    about = new Facts();
  view.title(visible(name), [["Virtual hosts", "#/vhosts"]]);
  const permissions = new Permissions(view, "vhost", name),
    limits = new Limits(view, "vhost", name);
  let found = null;
  const poll = view.poll(
    async (signal) => {
      found = await get(where, { signal });
      about.update([
        ["Description", visible(found.description ?? "", "none")],
        ["Messages", number(found.messages)],
        ["Ready", number(found.messages_ready)],
        ["Unacknowledged", number(found.messages_unacknowledged)],
        ["Received", octets(found.recv_oct)],
        ["Sent", octets(found.send_oct)],
        ["Tracing (firehose)", found.tracing ? "on" : "off"],
      ]);
      await permissions.refresh(signal);
      await limits.refresh(signal);
    },
    { everyS: 15 },
  );
  const change = async () => {
    const fields = [
      { name: "description", label: "Description", value: found.description ?? "" },
      {
        name: "tracing",
        label: "Tracing: copy every message to amq.rabbitmq.trace, which takes time",
        kind: "check",
        value: found.tracing,
      },
    ];
    if (
      !(await ask(
        `Change ${visible(name)}`,
        fields,
        "Change",
        (said) => put(where, { ...said, tags: found.tags }).then(() => undefined),
        { kind: "primary" },
      ))
    )
      return;
    notify("Virtual host changed.");
    poll.now();
  };
  view.show(
    h(
      "div",
      { class: "actions" },
      button("Change", () => found && change(), { kind: "primary" }),
      button("Delete", () => remove(view, where, name), { kind: "danger" }),
    ),
    panel("Virtual host", about.element),
    permissions.element,
    limits.element,
  );
}

/** Everything in it goes, so its name has to be typed. */
async function remove(view, where, name) {
  const form = new Form([{ name: "name", label: `Type ${visible(name)} to delete it`, autofocus: true }]);
  const does = async () => {
    if (form.values().name !== name) throw new Error("The name does not match.");
    await view.deleteWith(() => del(where));
  };
  const text = h(
    "p",
    null,
    "All its queues, messages, exchanges, bindings, policies and permissions are deleted, and its connections are closed. This cannot be undone.",
  );
  if (
    (await show(
      `Delete ${visible(name)}?`,
      [text, form.element],
      [
        { label: "Cancel", kind: "quiet" },
        { label: "Delete", kind: "danger", does },
      ],
    )) !== "Delete"
  )
    return;
  notify("Virtual host deleted.");
  document.dispatchEvent(new Event("vhostschange"));
  go("#/vhosts");
}
