"use strict";
// Small drawings: a row's interval, its seeds, and its training curves.

function drawn(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child != null));
  return node;
}

function chart(title, width, height) {
  const box = { class: "plot", role: "img", "aria-label": title, viewBox: `0 0 ${width} ${height}`, width, height };
  return drawn("svg", box);
}

function word(x, y, text, role = "muted", anchor = "start") {
  return drawn("text", { x, y, class: role, "text-anchor": anchor }, text);
}

// Maps values to pixels with a small margin.
function scaled(values, start, end) {
  let low = Math.min(...values), high = Math.max(...values);
  const margin = (high - low) * 0.06 || Math.abs(low) * 0.01 || 1;
  low -= margin;
  high += margin;
  const at = (value) => start + ((value - low) / (high - low)) * (end - start);
  return Object.assign(at, { low, high });
}

function ticks(scale, about = 4) {
  const rough = (scale.high - scale.low) / about;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(scale.low / step); n * step <= scale.high; n++) found.push(+(n * step).toFixed(8));
  return found;
}

// The interval of a difference. All rows of a table share the scale.
function whisker(gap, reach) {
  const [middle, low, high] = gap.map((v) => 28 + (Math.max(-reach, Math.min(reach, v)) / reach) * 25);
  return drawn("svg", { class: "whisker", width: 56, height: 14, "aria-hidden": "true" },
    drawn("line", { class: "zero", x1: 28, x2: 28, y1: 0, y2: 14 }),
    drawn("line", { class: "span", x1: low, x2: Math.max(high, low + 1), y1: 7, y2: 7 }),
    drawn("circle", { cx: middle, cy: 7, r: 3 }));
}

// A dot for each seed, a lane for each protocol, and a line at the paper's number.
function seedPlot(row) {
  const lanes = Object.entries(row.ours);
  const values = lanes.flatMap(([, own]) => own.scores.map(([, score]) => score));
  if (row.value != null) values.push(row.value);
  const height = 34 * lanes.length + 40;
  const x = scaled(values, 60, 404), plot = chart("Scores by seed", 416, height);
  for (const tick of ticks(x)) {
    plot.append(drawn("path", { class: "grid", d: `M${x(tick)} 8V${height - 32}` }), word(x(tick), height - 18, tick, "muted", "middle"));
  }
  if (row.value != null) {
    plot.append(drawn("path", { class: "paper", d: `M${x(row.value)} 4V${height - 32}`, "stroke-width": 1.5 }));
    plot.append(word(x(row.value), height - 3, `the paper’s ${row.paper}`, "paper", "middle"));
  }
  lanes.forEach(([name, own], lane) => {
    const y = 24 + 34 * lane;
    plot.append(word(0, y + 4, name, "ink"));
    for (const [seed, score] of own.scores) {
      const title = drawn("title", {}, `seed ${seed}: ${score}`);
      plot.append(drawn("circle", { class: "s0 solid", cx: x(score), cy: y, r: 4 }, title));
    }
    plot.append(drawn("path", { class: "ink", d: `M${x(own.value)} ${y - 9}V${y + 9}`, "stroke-width": 2 }));
  });
  return plot;
}

// Dev score by step, a line for each seed.
function trainingPlot(own) {
  const points = own.history.flatMap(([, curve]) => curve);
  const plot = chart("Dev score by step", 416, 190);
  const x = scaled(points.map(([step]) => step), 44, 404), y = scaled(points.map(([, score]) => score), 162, 8);
  for (const tick of ticks(y)) plot.append(drawn("path", { class: "grid", d: `M44 ${y(tick)}H404` }), word(38, y(tick) + 4, tick, "muted", "end"));
  for (const tick of ticks(x)) if (tick >= 0) plot.append(word(x(tick), 182, tick.toLocaleString("en"), "muted", "middle"));
  own.history.forEach(([seed, curve], index) => {
    const line = curve.map(([step, score]) => `${x(step).toFixed(1)} ${y(score).toFixed(1)}`).join("L");
    const title = drawn("title", {}, `seed ${seed}`);
    if (curve.length > 1) plot.append(drawn("path", { class: `s${index % 8}`, d: `M${line}`, "stroke-width": 1.5 }, title));
    else plot.append(drawn("circle", { class: `s${index % 8} solid`, cx: x(curve[0][0]), cy: y(curve[0][1]), r: 3 }, title));
  });
  return plot;
}
