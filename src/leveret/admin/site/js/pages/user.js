// One user: tags, password, permissions, limits.

import { del, get, path, put } from "../api.js";
import { confirm, notify } from "../dialog.js";
import { h } from "../dom.js";
import { ask } from "../form.js";
import { visible } from "../format.js";
import { Limits } from "../limits.js";
import { Permissions } from "../permissions.js";
import { go } from "../router.js";
import { Facts, badge, button, panel } from "../view.js";
import { TAGS_HINT, tagsOf } from "./users.js";

export default function user(view) {
  const { name } = view.params,
    where = path`users/${name}`,
    about = new Facts();
  view.title(visible(name), [["Users", "#/users"]]);
  const permissions = new Permissions(view, "user", name),
    limits = new Limits(view, "user", name);
  let found = null;
  const poll = view.poll(
    async (signal) => {
      found = await get(where, { signal });
      const tags = tagsOf(found);
      about.update([
        [
          "Tags",
          tags.length
            ? h(
                "span",
                { class: "badges wrap" },
                tags.map((tag) => badge(visible(tag), "accent")),
              )
            : "none",
        ],
        [
          "Password",
          found.password_hash
            ? `set, kept as ${found.hashing_algorithm.replace("rabbit_password_hashing_", "")}`
            : "none: password login is disabled",
        ],
      ]);
      await permissions.refresh(signal);
      await limits.refresh(signal);
    },
    { everyS: 30 },
  );
  const change = async () => {
    const fields = [
      { name: "tags", label: "Tags", value: tagsOf(found).join(", "), hint: TAGS_HINT },
      { name: "password", label: "New password", kind: "password", hint: "Empty: unchanged" },
    ];
    const isDone = await ask(
      `Change ${visible(name)}`,
      fields,
      "Change",
      ({ tags, password }) => {
        const secret = password
          ? { password }
          : found.password_hash
            ? { password_hash: found.password_hash, hashing_algorithm: found.hashing_algorithm }
            : { password_hash: "" };
        return put(where, { tags, ...secret }).then(() => undefined);
      },
      { kind: "primary" },
    );
    if (!isDone) return;
    notify("User changed.");
    poll.now();
  };
  const remove = async () => {
    if (
      !(await confirm(
        `Delete ${visible(name)}?`,
        "The user's permissions are deleted and its connections are closed.",
        "Delete",
        () => view.deleteWith(() => del(where)),
      ))
    )
      return;
    notify("User deleted.");
    go("#/users");
  };
  view.show(
    h(
      "div",
      { class: "actions" },
      button("Change tags or password", () => found && change(), { kind: "primary" }),
      button("Delete", remove, { kind: "danger" }),
    ),
    panel("User", about.element),
    permissions.element,
    limits.element,
  );
}
