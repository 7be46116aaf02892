// The search over topics, groups, clients and connections.

import { get } from "./api.js";
import { link, make, note } from "./dom.js";

const LIMIT = 50; // matches of each kind

const SOURCES = [
  ["topics", "Topics", () => get("/v1/topics", { limit: 1000, system: true }), (topic) => [topic.name, topic.name]],
  ["groups", "Consumer groups", () => get("/v1/consumer-groups", { limit: 1000 }), (group) => [group.name, group.name]],
  ["clients", "Clients", () => get("/v1/clients", { limit: 1000 }), (client) => [client.client_id, [client.client_id, ...client.addresses].join(" ")]],
  ["connections", "Connections", () => get("/v1/connections", { limit: 1000 }), (one) => [one.replica ? `${one.replica}/${one.number}` : String(one.number), [one.address, one.via, one.subject].filter(Boolean).join(" ")]],
  ["brokers", "Brokers", () => get("/v1/brokers"), (broker) => [broker.name, [broker.name, ...broker.addresses.map((address) => address.address)].join(" ")]],
];

export function search(view, text) {
  const wanted = text.toLowerCase();
  for (const [kind, title, read, describe] of SOURCES) {
    view.panel(title, async () => {
      const found = (await read()).items.map(describe).filter(([, words]) => words.toLowerCase().includes(wanted));
      if (!found.length) return note("nothing");
      return make("ul", { class: "found" }, found.slice(0, LIMIT).map(([name, words]) => make("li", {}, link(kind, name, kind === "connections" ? `${name} · ${words}` : name))));
    }, { every: 0 });
  }
}
