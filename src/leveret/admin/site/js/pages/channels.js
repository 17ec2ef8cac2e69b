// The list of channels.

import { get, path } from "../api.js";
import { CHANNEL_COLUMNS, channelColumns } from "../channels.js";
import { link } from "../router.js";
import { Local, Remote } from "../sources.js";
import { Table } from "../table.js";

export default function channels(view) {
  const source =
    view.vhost === null
      ? new Remote({ where: "channels", columns: CHANNEL_COLUMNS })
      : new Local({
          load: (signal) => get(path`vhosts/${view.vhost}/channels`, { query: { columns: CHANNEL_COLUMNS }, signal }),
        });
  const table = new Table(view, {
    label: "Channels",
    isFull: true,
    sort: "name",
    source,
    href: (row) => link`channels/${row.name}`,
    columns: channelColumns({ hasUser: true }),
    empty: view.user.isMonitor
      ? "No channels."
      : "You have no channels. Seeing those of other users requires the monitoring or administrator tag.",
  });
  view.show(table.element);
  table.start();
}
