// The keyboard: single keys, and "g" followed by a page's key. Nothing is taken from who is typing, or from the browser's own.

const FOLLOW_MS = 1500;
const bound = new Map(); // key -> {does, says}
let isAfterG = false;
let timer = null;

/** Bind a key: "x", or "g x". says: for the list of keys. signal: until when. */
export function bind(key, says, does, signal) {
  const entry = { does, says };
  bound.set(key, entry);
  signal?.addEventListener("abort", () => { if (bound.get(key) === entry) bound.delete(key); });
}

/** [key, says] of all that are bound now. */
export function all() {
  return [...bound].map(([key, { says }]) => [key, says]);
}

const isTyping = (target) => target.closest?.("input, select, textarea, [contenteditable]") !== null;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const name = isAfterG ? `g ${event.key}` : event.key;
  clearTimeout(timer);
  isAfterG = false;
  if (name === "g") {
    isAfterG = true;
    timer = setTimeout(() => { isAfterG = false; }, FOLLOW_MS);
    return;
  }
  const entry = bound.get(name);
  if (!entry) return;
  event.preventDefault();
  entry.does();
});
