// Charts in SVG. rows: the values of each point, the oldest first; length: points of a full chart.

import { draw, fill } from "./dom.js";

function scale(svg, rows, most, words, length) {
  const width = svg.clientWidth || 400, height = svg.clientHeight || 130;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const heights = [0.5, 1].map((share) => [share, height - share * (height - 16)]);
  fill(svg, heights.map(([, y]) => draw("line", { class: "grid", x1: 0, x2: width, y1: y, y2: y })));
  // Drawn last, so that no area covers it.
  const label = () => svg.append(...heights.map(([share, y]) => draw("text", { x: 2, y: y - 3 }, words(share * most))));
  return { label, x: (index) => width - (rows.length - 1 - index) * (width / Math.max(length - 1, 1)), y: (value) => height - (value / most) * (height - 16) };
}

export function areas(svg, rows, kinds, words, length) {
  const most = nice(Math.max(1, ...rows.map((values) => values.reduce((sum, value) => sum + value, 0))));
  const { x, y, label } = scale(svg, rows, most, words, length);
  const base = rows.map(() => 0);
  kinds.forEach((kind, number) => {
    const lower = rows.map((_, index) => `${x(index)},${y(base[index])}`).reverse();
    rows.forEach((values, index) => { base[index] += values[number]; });
    const upper = rows.map((_, index) => `${x(index)},${y(base[index])}`);
    if (rows.length) svg.append(draw("polygon", { class: `area ${kind}`, points: [...upper, ...lower].join(" ") }));
  });
  label();
}

export function lines(svg, rows, kinds, words, length) {
  const most = nice(Math.max(1, ...rows.flat().map((value) => value || 0)));
  const { x, y, label } = scale(svg, rows, most, words, length);
  kinds.forEach((kind, number) => {
    let path = "", gap = true;
    rows.forEach((values, index) => {
      const value = values[number];
      if (value === null) { gap = true; return; }
      path += `${gap ? "M" : "L"}${x(index)} ${y(value)}`;
      gap = false;
    });
    if (path) svg.append(draw("path", { class: `trace ${kind}`, d: path }));
  });
  label();
}

// The next of 1, 2, 5 times a power of ten, so that the axis is stable.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

export function spark(trend) {
  const most = Math.max(1, ...trend);
  const svg = draw("svg", { viewBox: "0 0 90 18", "aria-hidden": "true" });
  const points = trend.map((value, index) => `${90 - (trend.length - 1 - index) * (90 / 59)},${17 - (value / most) * 16}`);
  svg.append(draw("polyline", { class: "trace spark", points: points.join(" ") }));
  return svg;
}
