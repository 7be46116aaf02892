// Elements. Names from clients are set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function draw(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const fill = (list, items) => list.replaceChildren(...items);

// A link to a page: link("groups", "billing") leads to #/groups/billing.
export function link(kind, name, words = name) {
  return make("a", { href: `#/${kind}/${encodeURIComponent(name)}`, title: name }, String(words));
}

export const links = (kind, names) => make("span", {}, names.flatMap((name, index) => (index ? [", ", link(kind, name)] : [link(kind, name)])));

export const badge = (words, kind = "") => make("span", { class: `badge ${kind}` }, words);

export const note = (words, kind = "faint") => make("p", { class: kind }, words);

// Facts: pairs of a term and its value; null values are left out.
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", { class: "facts" }, shown.map(([term, value]) => make("div", {}, make("dt", {}, term), make("dd", {}, value instanceof Node ? value : String(value)))));
}
