// Figures as people read them. Locale-independent, so that a figure looks the same to everybody who talks about it.

const GROUPS = /\B(?=(\d{3})+(?!\d))/g;
const OCTETS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function number(value) {
  if (value === null || value === undefined || value === "") return "–";
  return String(value).replace(GROUPS, "\u202f");
}

/** Per second: 0, 0.4, 12, 1 234, 1.24 M. */
export function rate(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  if (value < 10) return value.toFixed(1);
  if (value < 1e6) return number(Math.round(value));
  return `${(value / 1e6).toFixed(2)} M`;
}

export function octets(value) {
  if (value === null || value === undefined) return "–";
  if (value === "infinity" || value === Infinity) return "unlimited";
  let size = Number(value), unit = 0;
  while (size >= 1024 && unit < OCTETS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${OCTETS[unit]}`;
}

/** Milliseconds as the two greatest units: 3 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  let left = Math.floor(ms / 1000);
  const parts = [];
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    if (left >= length || parts.length) parts.push(`${Math.floor(left / length)} ${unit}`);
    left %= length;
  }
  return parts.slice(0, 2).join(" ");
}

/** Milliseconds since 1970 as local date and time. */
export function time(ms) {
  if (!ms) return "–";
  const at = new Date(ms), two = (each) => String(each).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `
    + `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function yesNo(value) {
  return value ? "yes" : "no";
}

/** A name that can be seen: the default exchange has none. Control characters are shown, not obeyed. */
export function visible(name, empty = "(default)") {
  if (name === "") return empty;
  return String(name).replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, (each) =>
    each === "\n" ? "⏎" : `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Any JSON as one line; text as it is. */
export function value(some) {
  return typeof some === "string" ? some : JSON.stringify(some);
}
