// Parts that are built once: overview, filters, sections, theme.

const SHEETS = { Curves: "curves", Seeds: "seeds" };

function bar(rows) {
  const parts = data.verdicts.map((name) => [name, rows.filter((row) => row.verdict === name).length]);
  const known = parts.filter(([, count]) => count);
  const label = known.map(([name, count]) => `${count} ${name}`).join(", ");
  return made("div", { class: "bar", role: "img", "aria-label": label, title: label },
    known.map(([name, count]) => made("i", { "data-verdict": name, style: `flex:${count}` })));
}

function overview() {
  const papers = new Map();
  for (const table of data.tables) papers.set(table.paper, [...(papers.get(table.paper) ?? []), table]);
  for (const [paper, tables] of papers) {
    const tiles = tables.map((table) => made("a", { class: "tile", href: `#${table.name}`, onclick: (event) => go(event, table) },
      made("div", { class: "name" }, made("span", {}, table.table), made("span", {}, String(table.rows.length))), bar(table.rows)));
    at("overview").append(made("div", { class: "group" }, made("h3", {}, paper), made("div", { class: "tiles" }, tiles)));
  }
}

function go(event, table) {
  event.preventDefault();
  if (table.node.hidden) clear();
  table.node.scrollIntoView();
  table.node.querySelector("h2").focus({ preventScroll: true });
}

function clear() {
  Object.assign(state, { find: "", paper: "", table: "", verdicts: new Set() });
  filled();
  refresh();
}

function filled() {
  at("find").value = state.find;
  const own = data.tables.filter((table) => !state.paper || table.paper === state.paper);
  const papers = [...new Set(data.tables.map((table) => table.paper))];
  const option = (value, text, chosen) => made("option", { value, selected: value === chosen }, text);
  at("paper").replaceChildren(option("", "all", state.paper), ...papers.map((name) => option(name, name, state.paper)));
  const name = (table) => (papers.length > 1 && !state.paper ? `${table.paper} · ${table.table}` : table.table);
  at("table").replaceChildren(option("", "all", state.table), ...own.map((table) => option(table.name, name(table), state.table)));
}

function filters() {
  const chips = data.verdicts.map((name) => made("button", {
    class: "chip", type: "button", "data-verdict": name, "aria-pressed": "false",
    onclick: () => { state.verdicts.delete(name) || state.verdicts.add(name); refresh(); },
  }, made("i", { class: "dot" }), name, made("b", {})));
  at("verdicts").append(...chips);
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("find").addEventListener("input", (event) => { state.find = event.target.value.trim(); refresh(); });
  at("paper").addEventListener("change", (event) => { Object.assign(state, { paper: event.target.value, table: "" }); filled(); refresh(); });
  at("table").addEventListener("change", (event) => { state.table = event.target.value; refresh(); });
  filled();
}

function sheet(table) {
  table.columns = columns(table);
  const ends = table.rows.flatMap((row) => (row.gap ? row.gap.map(Math.abs) : [])).sort((a, b) => a - b);
  table.reach = ends[Math.floor(ends.length * 0.95)] || 1; // an outlier must not flatten the others
  for (const row of table.rows) row.text = [table.paper, table.table, table.title, row.where, row.verdict, row.runs ? "" : row.why].join(" ").toLowerCase();
  const head = table.columns.map((column, index) => made("th", { scope: "col", class: column.kind },
    made("button", { type: "button", onclick: () => sortBy(table, index) }, column.name)));
  table.head = made("tr", {}, head);
  table.body = made("tbody");
  table.node = made("section", { class: "sheet", id: table.name, "aria-label": `${table.paper}, ${table.table}` },
    made("header", {}, made("h2", { tabindex: "-1" }, `${table.paper} · ${table.table}`), made("p", {}, [table.title, table.fixed].filter(Boolean).join(" · "))),
    made("div", { class: "beside" }, facts(table),
      Object.entries(SHEETS).filter(([, key]) => table.plots[key] != null).map(([name, key]) => figure(name, table.plots[key], key === table.first))),
    made("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `${table.paper}, ${table.table}: rows` },
      made("table", {}, made("thead", {}, table.head), table.body)),
    Object.entries(table.notes).map(([mark, note]) => made("p", { class: "note" }, `(${mark}) ${note}.`)),
    table.variants.map((text) => made("p", { class: "note" }, `${text}.`)));
  at("tables").append(table.node);
}

function facts(table) {
  const known = { Protocol: table.protocol, Source: table.source, Reported: table.reported, Precision: table.precision, Cost: table.hours };
  const terms = Object.entries(known).filter(([, text]) => text).flatMap(([name, text]) => [made("dt", {}, name), made("dd", {}, text)]);
  return made("details", {}, made("summary", {}, "How it was measured"), made("dl", {}, terms));
}

function figure(name, number, open) {
  const box = made("div", { class: "figures", role: "region", tabindex: "0", "aria-label": name });
  const node = made("details", { open }, made("summary", {}, name), box);
  node.addEventListener("toggle", () => { if (node.open && !box.firstChild) box.append(drawing(number)); });
  return node;
}

function theme() {
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { at("theme").textContent = dark() ? "Light" : "Dark"; at("theme").setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"}`); };
  const stored = (() => { try { return localStorage.getItem("ledger-theme"); } catch { return null; } })();
  if (stored) document.documentElement.dataset.theme = stored;
  at("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("ledger-theme", document.documentElement.dataset.theme); } catch { /* the browser keeps nothing */ }
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}

theme();
overview();
recall();
filters();
data.tables.forEach(sheet);
refresh();
addEventListener("beforeprint", () => document.querySelectorAll(".beside > details").forEach((node) => (node.open = true)));
at("made").textContent = `ptrun ${data.version}, ${data.date}`;
