"use strict";
// The page. The address keeps filters and sorting, so a view can be shared.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const state = { find: "", paper: "", table: "", verdicts: new Set(), sorts: {} };

function made(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") node.style.cssText = value; // an attribute is refused by the page's policy
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value != null && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

function drawing(number) {
  return at(`drawing${number}`).content.cloneNode(true);
}

// Columns: a name, the sort key, and the cell.

const title = (word) => word[0].toUpperCase() + word.slice(1);

function columns(table) {
  const places = table.axes.map((axis, index) => ({
    name: title(axis), key: (row) => row.place[index], cell: (row) => row.place[index], kind: "place",
  }));
  const number = (name, key, cell, kind = "num") => ({ name, key, cell, kind });
  const rerun = number("Released", (row) => row.rerun, (row) => row.released);
  const score = (protocol) => [(row) => row.ours?.[protocol]?.value, (row) => row.shown?.[protocol]];
  return [
    ...places,
    { name: "Verdict", key: (row) => data.verdicts.indexOf(row.verdict), cell: verdict, kind: "" },
    number("Paper", (row) => row.value, (row) => row.paper),
    ...(table.released ? [rerun] : []),
    number("Ours (paper)", ...score("paper"), "num value"),
    number("Ours (honest)", ...score("honest"), "num value"),
    number("Difference", (row) => row.gap?.[0], (row) => difference(row, table)),
    number("Seeds", (row) => row.ours && Object.values(row.ours)[0].scores.length, (row) => seeds(row)),
    number("Learned", (row) => row.learned, (row) => row.learned == null ? null : short(row.learned)),
    number("Cost", (row) => row.hours || null, (row) => row.cost),
  ];
}

function difference(row, table) {
  if (!row.gap) return made("small", { class: "why" }, row.why ?? "–");
  const [head, ...interval] = row.difference.split(" ");
  const text = made("span", {}, head + " ", made("small", {}, interval.join(" ")));
  return made("span", {}, text, whisker(row.gap, table.reach));
}

// The interval of a difference. All rows of a table share the scale.
function whisker(gap, reach) {
  const [middle, low, high] = gap.map((v) => 28 + (Math.max(-reach, Math.min(reach, v)) / reach) * 25);
  return made("span", { class: "whisker", "aria-hidden": "true" },
    made("span", { class: "span", style: `left:${low}px;width:${Math.max(high - low, 1)}px` }), made("span", { class: "mid", style: `left:${middle - 3}px` }));
}

function verdict(row) {
  return made("span", { class: "verdict" }, made("i", { class: "dot" }), row.verdict);
}

// A mean and its deviation, which is grey.
function score(text) {
  const [head, deviation] = String(text).split(" ± ");
  return [made("span", {}, head, deviation ? made("small", {}, ` ± ${deviation}`) : null)];
}

// A short count; the details of its row have all digits.
function short(count) {
  return count.toLocaleString("en", count < 100000 ? {} : { notation: "compact", minimumFractionDigits: 1, maximumFractionDigits: 1 });
}

// The number of seeds, with the missing seeds as a tooltip.
function seeds(row) {
  if (!row.ours) return null;
  const missing = Object.values(row.ours)[0].missing;
  return made("span", { title: missing.length ? `without seed ${missing.join(", ")}` : null }, row.seeds);
}

// Rows.

function line(row, table, found) {
  const cells = found.map((column, index) => {
    const value = column.cell(row);
    const shown = typeof value === "string" && column.kind.startsWith("num") ? score(value) : [value ?? "–"];
    const none = value == null || value === "–";
    const inside = index === 0 && row.ours ? made("button", { class: "open", type: "button", "aria-expanded": "false", "aria-label": `${row.where}: details` }, shown) : shown;
    return made("td", { class: `${column.kind}${none ? " none" : ""}`, "data-label": column.name }, inside);
  });
  const node = made("tr", { class: "row", "data-verdict": row.verdict }, row.ours ? cells : todo(row, table, cells));
  node.querySelector(".open")?.addEventListener("click", (event) => toggle(event.target, node, row, found.length));
  return node;
}

// Without runs, the columns of runs show the command, or why there is none.
function todo(row, table, cells) {
  const before = table.axes.length + (table.released ? 3 : 2); // places, verdict, the paper's
  const again = table.reasons.has(row.why) ? "again" : null; // a repeated reason is shortened
  table.reasons.add(row.why);
  const text = row.runs ? [made("code", { title: row.why }, row.why), copier(row.why)] : [made("span", { title: row.why, class: again }, withCode(row.why))];
  const rest = made("td", { class: "todo", colspan: cells.length - before }, made("div", {}, text));
  return [...cells.slice(0, before), rest];
}

// Text between backticks is code.
function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? made("code", {}, part) : part));
}

function copier(text) {
  const button = made("button", { class: "copy", type: "button", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copied(text);
    button.textContent = done ? "Copied" : "Select it";
    at("announcement").textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = made("textarea", { class: "hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function toggle(button, node, row, width) {
  const open = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!open));
  if (open) node.nextSibling.remove();
  else node.after(made("tr", { class: "detail" }, made("td", { colspan: width }, detail(row))));
}

function detail(row) {
  return made("div", { class: "panels" },
    made("div", {}, made("h3", {}, "Scores by seed"), drawing(row.plot), Object.entries(row.ours).map(summary),
      made("p", {}, `${row.learned.toLocaleString("en")} learned parameters${row.hours ? `; ${row.cost} in all` : ""}`)),
    Object.entries(row.curves).map(([name, curves]) => made("div", {}, made("h3", {}, `Dev score by step, ${name} protocol`), drawing(curves))),
    row.pairs.length ? made("div", {}, made("h3", {}, "Compared with other methods, same seeds"), paired(row.pairs)) : null,
    row.labels.length ? made("div", {}, made("h3", {}, "Labels on test, means over seeds"), labels(row.labels)) : null);
}

function labels(rows) {
  const head = ["Label", "Count", "Precision", "Recall", "F1", "Read as"].map((text) => made("th", { scope: "col" }, text));
  const cells = (row) => row.map((text, index) => made("td", { class: index > 0 && index < 5 ? "num" : "" }, text.toLocaleString("en")));
  return made("table", {}, made("thead", {}, made("tr", {}, head)), made("tbody", {}, rows.map((row) => made("tr", {}, cells(row)))));
}

function summary([name, own]) {
  const failed = own.failed.length ? `; failed: ${own.failed.join(", ")}` : "";
  const missing = own.missing.length ? `; without seed ${own.missing.join(", ")}` : "";
  const part = own.searched < own.planned ? `${own.searched} of ` : "";
  const searched = own.planned > 1 ? `; best of ${part}${own.planned} configurations on dev` : "";
  const scores = own.scores.map(([, score]) => score.toFixed(2)).join("  ");
  return made("p", {}, made("b", {}, name), ` ${scores}${missing}${failed}${searched}`);
}

function paired(pairs) {
  const cells = (row) => [row.other, row.protocol, row.seeds, row.difference, row.p].map((text, index) => made("td", { class: index > 1 ? "num" : "" }, text));
  const head = ["Method", "Protocol", "Seeds", "Difference", "p"].map((text, index) => made("th", { scope: "col", class: index > 1 ? "num" : "" }, text));
  return [made("table", {}, made("thead", {}, made("tr", {}, head)), made("tbody", {}, pairs.map((row) => made("tr", {}, cells(row))))),
    made("p", {}, "p: two-sided p-value of sign flips of the paired differences, not corrected for multiple tests.")];
}

// Filtering and sorting.

function fits(row, table, besideVerdict = false) {
  if (state.paper && table.paper !== state.paper) return false;
  if (state.table && table.name !== state.table) return false;
  if (!besideVerdict && state.verdicts.size && !state.verdicts.has(row.verdict)) return false;
  return state.find.toLowerCase().split(/\s+/).every((word) => row.text.includes(word));
}

function compared(a, b) {
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

function sorted(rows, table, found) {
  const [index, way] = state.sorts[table.name] ?? [];
  if (index == null) return rows;
  const key = found[index].key;
  const known = rows.filter((row) => key(row) != null).sort((a, b) => way * compared(key(a), key(b)));
  return [...known, ...rows.filter((row) => key(row) == null)]; // rows without a value come last in both directions
}

function sortBy(table, index) {
  const [old, way] = state.sorts[table.name] ?? [];
  if (old !== index) state.sorts[table.name] = [index, 1];
  else if (way === 1) state.sorts[table.name] = [index, -1];
  else delete state.sorts[table.name];
  fill(table);
  keep();
}

function fill(table) {
  const rows = sorted(table.rows.filter((row) => fits(row, table)), table, table.columns);
  table.reasons = new Set();
  table.body.replaceChildren(...rows.map((row) => line(row, table, table.columns)));
  table.node.hidden = rows.length === 0;
  const [index, way] = state.sorts[table.name] ?? [];
  [...table.head.children].forEach((cell, own) => {
    if (own === index) cell.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
  return rows.length;
}

function refresh() {
  const count = data.tables.map(fill).reduce((a, b) => a + b, 0);
  const all = data.tables.reduce((sum, table) => sum + table.rows.length, 0);
  at("shown").textContent = count === all ? `${all.toLocaleString("en")} printed numbers` : `${count.toLocaleString("en")} of ${all.toLocaleString("en")} printed numbers`;
  for (const chip of at("verdicts").children) {
    const name = chip.dataset.verdict;
    const own = data.tables.reduce((sum, t) => sum + t.rows.filter((row) => row.verdict === name && fits(row, t, true)).length, 0);
    chip.setAttribute("aria-pressed", String(state.verdicts.has(name)));
    chip.querySelector("b").textContent = own.toLocaleString("en");
  }
  keep();
}

// The address keeps the state.

function keep() {
  const found = new URLSearchParams();
  for (const key of ["find", "paper", "table"]) if (state[key]) found.set(key, state[key]);
  if (state.verdicts.size) found.set("verdict", [...state.verdicts].join(","));
  for (const [name, [index, way]] of Object.entries(state.sorts)) found.set(`sort.${name}`, `${way > 0 ? "" : "-"}${index}`);
  try {
    if (String(found) || location.hash.includes("=")) history.replaceState(null, "", `#${found}`);
  } catch { /* not allowed in a frame */ }
}

function recall() {
  if (!location.hash.includes("=")) return;
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    if (["find", "paper", "table"].includes(key)) state[key] = value;
    if (key === "verdict") state.verdicts = new Set(value.split(","));
    if (key.startsWith("sort.")) state.sorts[key.slice(5)] = [Math.abs(parseInt(value, 10)), value.startsWith("-") ? -1 : 1];
  }
}
