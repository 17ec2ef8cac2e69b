// All pages: one line each. path: ":name" is a parameter; title: in the navigation and the window; group: of the navigation, in
// this order; none: it is not in the navigation; noun: what a page of one object is about; of: the page whose entry of the
// navigation is lit; key: behind "g"; may(user): whether this user sees it; why: what other users are told.

export const GROUPS = ["Now", "Messaging", "Clients", "Rules", "Access"];

const administrators = { may: (user) => user.isAdministrator, why: "This page requires the administrator tag." };
const monitors = { may: (user) => user.isMonitor, why: "This page requires the monitoring or administrator tag." };

export const PAGES = [
  { path: "overview", title: "Overview", group: "Now", key: "o", module: () => import("./pages/overview.js") },
  { path: "queues", title: "Queues", group: "Messaging", key: "q", module: () => import("./pages/queues.js") },
  { path: "queues/:vhost/:name", noun: "queue", title: "Queue", of: "queues", module: () => import("./pages/queue.js") },
  { path: "exchanges", title: "Exchanges", group: "Messaging", key: "e", module: () => import("./pages/exchanges.js") },
  { path: "exchanges/:vhost/:name", noun: "exchange", title: "Exchange", of: "exchanges", module: () => import("./pages/exchange.js") },
  { path: "topology", title: "Topology", group: "Messaging", key: "m", module: () => import("./pages/topology.js") },
  { path: "delayed", title: "Delayed messages", group: "Messaging", key: "d", module: () => import("./pages/delayed.js") },
  { path: "streams", title: "Streams", group: "Messaging", key: "s", module: () => import("./pages/streams.js") },
  { path: "streams/:vhost/:stream", noun: "stream", title: "Stream", of: "streams", module: () => import("./pages/stream.js") },
  { path: "queries", title: "Queries", group: "Messaging", module: () => import("./pages/queries.js") },
  { path: "federation", title: "Federation", group: "Messaging", key: "f", module: () => import("./pages/federation.js"), ...monitors },
  { path: "explain", title: "Explain a route", group: "Messaging", key: "x", module: () => import("./pages/explain.js") },
  { path: "explain/:vhost", title: "Explain a route", of: "explain", module: () => import("./pages/explain.js") },
  { path: "browse/:vhost/:name", noun: "queue", title: "Messages", of: "queues", module: () => import("./pages/browse.js") },
  { path: "connections", title: "Connections", group: "Clients", key: "c", module: () => import("./pages/connections.js") },
  { path: "connections/:name", noun: "connection", title: "Connection", of: "connections", module: () => import("./pages/connection.js") },
  { path: "channels", title: "Channels", group: "Clients", key: "h", module: () => import("./pages/channels.js") },
  { path: "channels/:name", noun: "channel", title: "Channel", of: "channels", module: () => import("./pages/channel.js") },
  { path: "replies", title: "Direct replies", group: "Clients", module: () => import("./pages/replies.js") },
  { path: "policies", title: "Policies", group: "Rules", key: "p", module: () => import("./pages/policies.js") },
  { path: "limits", title: "Limits", group: "Rules", key: "l", module: () => import("./pages/limits.js"), ...monitors },
  { path: "users", title: "Users", group: "Access", key: "u", module: () => import("./pages/users.js"), ...administrators },
  { path: "users/:name", noun: "user", title: "User", of: "users", module: () => import("./pages/user.js"), ...administrators },
  { path: "vhosts", title: "Virtual hosts", group: "Access", key: "v", module: () => import("./pages/vhosts.js") },
  { path: "vhosts/:name", noun: "virtual host", title: "Virtual host", of: "vhosts", module: () => import("./pages/vhost.js"), ...administrators },
];

/** Why a user may not see a page; "" if he may. */
export function refusalOf(page, user) {
  return page.may && !page.may(user) ? page.why : "";
}
