// The chart of the last hour of a topic or a group, by minute.

import { get } from "./api.js";
import { areas } from "./charts.js";
import { draw, make } from "./dom.js";
import { short } from "./format.js";

// kinds: the figures that are shown, each with its colour and its name.
export async function hourChart(label, query, kinds) {
  const { items } = await get("/v1/history", query);
  const svg = draw("svg", { role: "img", "aria-label": label });
  requestAnimationFrame(() => areas(svg, items.map((step) => kinds.map(([name]) => step[name])), kinds.map(([, kind]) => kind), short, 60));
  const keys = kinds.map(([, kind, words]) => make("span", { class: `key ${kind}` }, words));
  return make("figure", {}, make("figcaption", {}, ...keys), svg);
}
