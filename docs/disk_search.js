// Search on pages that are opened from the disk: a browser starts no worker there, which the theme's search needs.
const found = (entries, words) => {
  const place = (entry) => {
    const title = entry.title.toLowerCase(), text = entry.text.toLowerCase();
    const hits = words.map((word) => (title.includes(word) ? 2 : text.includes(word) ? 1 : 0));
    return hits.includes(0) ? 0 : hits.reduce((a, b) => a + b);
  };
  const placed = entries.map((entry) => [place(entry), entry]).filter(([own]) => own);
  return placed.sort((a, b) => b[0] - a[0]).map(([, entry]) => entry);
};

const passage = (text, word) => {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 60);
  return (at ? "…" : "") + text.slice(at, at + 180);
};

const result = (entry, base, word) => {
  const item = document.createElement("li"), link = document.createElement("a");
  const box = document.createElement("article"), head = document.createElement("h2"), text = document.createElement("p");
  item.className = "md-search-result__item";
  link.className = "md-search-result__link";
  box.className = "md-search-result__article md-typeset";
  link.href = `${base}/${entry.location}`;
  head.textContent = entry.title;
  text.textContent = passage(entry.text, word);
  box.append(head, text);
  link.append(box);
  item.append(link);
  return item;
};

const search = () => {
  const { base } = JSON.parse(document.getElementById("__config").textContent);
  const old = document.querySelector(".md-search__input"), input = old.cloneNode(true);
  const meta = document.querySelector(".md-search-result__meta"), list = document.querySelector(".md-search-result__list");
  old.replaceWith(input);
  input.addEventListener("focus", () => { document.getElementById("__search").checked = true; });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const entries = words.length ? found(window.searchEntries, words) : [];
    meta.textContent = words.length ? `${entries.length} matches` : "Type to search";
    list.replaceChildren(...entries.slice(0, 30).map((entry) => result(entry, base, words[0])));
  });
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) {
    input.value = asked;
    input.dispatchEvent(new Event("focus"));
    input.dispatchEvent(new Event("input"));
  }
};

if (location.protocol === "file:") {
  window.addEventListener("load", () => {
    const { base } = JSON.parse(document.getElementById("__config").textContent);
    const script = document.createElement("script");
    script.src = `${base}/search/entries.js`;
    script.onload = search;
    document.head.append(script);
  });
}
