"use strict";
// A click on the head of a column sorts its table; a second one reverses it.

const wayOf = (head) => (head.ariaSort === "ascending" ? -1 : 1);

function keyOf(cell, isNumber) {
  const text = cell.dataset.value ?? cell.textContent;
  return isNumber ? parseFloat(text.replaceAll(",", "").replace("−", "-")) : text;
}

function sort(table, head, index) {
  const way = wayOf(head), isNumber = head.align === "right";
  const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row.cells[index], isNumber), row]);
  rows.sort(([a], [b]) => {
    if (!isNumber) return way * a.localeCompare(b, "en", { numeric: true });
    return Number.isNaN(a) - Number.isNaN(b) || way * (a - b) || 0; // no number: last both ways
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
  head.ariaSort = way > 0 ? "ascending" : "descending";
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(table, head, index));
    head.replaceChildren(button);
  });
}

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((node) => (node.open = true)));
