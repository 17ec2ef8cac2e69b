// A list whose rows come and go, one element for each: nobody loses the focus because something was counted.

/** rows in their order; key(row): who it is, as text; make(row) → {element, update(row)}. */
export function keep(list, rows, key, make) {
  const there = new Map([...list.children].map((each) => [each.dataset.key, each]));
  let before = null;
  for (const row of rows) {
    const id = key(row);
    let element = there.get(id);
    if (!element) {
      const made = make(row);
      element = made.element;
      element.dataset.key = id;
      element.updateRow = made.update;
    }
    there.delete(id);
    element.updateRow(row);
    const expected = before ? before.nextSibling : list.firstChild;
    if (expected !== element) list.insertBefore(element, expected);
    before = element;
  }
  for (const element of there.values()) element.remove();
}
