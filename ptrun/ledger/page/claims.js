// The claims of the shown papers on small pretrained models.

const HOLDS = { holds: "within", "does not hold": "below", undecided: "not comparable" };

const mean = (scores) => scores.reduce((sum, score) => sum + score, 0) / scores.length;

function spread(name, scores) {
  const middle = mean(scores);
  const deviation = Math.sqrt(scores.reduce((sum, score) => sum + (score - middle) ** 2, 0) / (scores.length - 1));
  return [`${name} ${middle.toFixed(2)} `, made("small", {}, `± ${deviation.toFixed(2)}`)];
}

function claimed(claim) {
  const [gap, low, high] = claim.gap.map((value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2));
  const cells = {
    Claim: [`${claim.paper}, ${claim.source}: ${claim.says}`],
    First: spread(claim.first, claim.scores[0]),
    Second: spread(claim.second, claim.scores[1]),
    "By seed": [drawing(claim.plot)],
    Difference: [`${gap} `, made("small", {}, `${low} to ${high}`)],
    Verdict: [made("span", { class: "verdict" }, made("i", { class: "dot" }), claim.verdict)],
  };
  return made("tr", { class: "row", "data-verdict": HOLDS[claim.verdict] },
    Object.entries(cells).map(([name, content]) => made("td", { class: name === "Claim" ? "place" : "", "data-label": name }, made("span", {}, content))));
}

function claims() {
  const { claims: own, measured } = data.claims;
  if (!own.length) return;
  const names = ["Claim", "First", "Second", "By seed", "Difference", "Verdict"];
  at("claims").append(
    made("header", {}, made("h2", { tabindex: "-1" }, "Claims on small pretrained models"), made("p", {}, measured)),
    made("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Claims" },
      made("table", { class: "claims" }, made("thead", {}, made("tr", {}, names.map((name) => made("th", { scope: "col" }, name)))), made("tbody", {}, own.map(claimed)))));
  at("claims").hidden = false;
  const tile = made("a", { class: "tile", href: "#claims" }, made("div", { class: "name" }, made("span", {}, "Small models"), made("span", {}, String(own.length))),
    bar(own.map((claim) => ({ verdict: HOLDS[claim.verdict] }))));
  at("overview").append(made("div", { class: "group" }, made("h3", {}, "Claims"), made("div", { class: "tiles" }, tile)));
}

claims();
