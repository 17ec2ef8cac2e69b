// All pages: one line each. path: ":name" is a parameter; title: in the navigation and the window; group: of the navigation, in
// this order; none: it is not in the navigation; of: the page whose entry of the navigation is lit; key: behind "g"; may(user):
// who sees it; why: what is said to who does not.

export const GROUPS = ["Now", "Messaging", "Clients", "Rules", "Access"];

const administrators = { may: (user) => user.isAdministrator, why: "Only users with the tag administrator may see this." };
const monitors = { may: (user) => user.isMonitor, why: "Only users with the tag monitoring or administrator may see this." };

export const PAGES = [
  { path: "queues", title: "Queues", group: "Messaging", key: "q", module: () => import("./pages/queues.js") },
];

/** Why a user may not see a page; "" if he may. */
export function refusalOf(page, user) {
  return page.may && !page.may(user) ? page.why : "";
}
