// Which page an address is. Addresses stand behind the #: #/queues/%2F/my%20queue?page=2, each segment encoded.

import { PAGES } from "./pages.js";

/** The page at an address: {page, params, query}; null if there is none. */
export function resolve(hash) {
  const [way, query] = hash.replace(/^#?\/?/, "").split("?");
  let segments;
  try {
    segments = way.split("/").map(decodeURIComponent);
  } catch {
    return null;
  }
  for (const page of PAGES) {
    const params = match(page.path.split("/"), segments);
    if (params) return { page, params, query: new URLSearchParams(query ?? "") };
  }
  return null;
}

function match(pattern, segments) {
  if (pattern.length !== segments.length) return null;
  const params = {};
  for (const [at, part] of pattern.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = segments[at];
    else if (part !== segments[at]) return null;
  }
  return params;
}

/** link`queues/${vhost}/${name}`: the address of a page. */
export function link(strings, ...values) {
  return `#/${String.raw({ raw: strings }, ...values.map((each) => encodeURIComponent(each)))}`;
}

/** Go there. */
export function go(hash) {
  location.hash = hash;
}
