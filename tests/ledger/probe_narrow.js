// What is wider than the screen: in boxes that do not scroll, and in the cards of rows.
const root = document.documentElement;
const over = [...document.querySelectorAll("body *")]
  .filter((node) => !node.closest(".scroll, .figures, .hidden, .skip, svg") && node.getBoundingClientRect().right > innerWidth + 0.5);
const cards = [...document.querySelectorAll("tr.row td")]
  .filter((cell) => cell.getBoundingClientRect().right > innerWidth + 0.5);
const told = { width: innerWidth, scroll: root.scrollWidth, over: over.map((n) => n.className || n.tagName), cards: cards.length,
  display: getComputedStyle(document.querySelector("tr.row")).display };
