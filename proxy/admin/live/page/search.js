// The search over topics, groups, clients and connections.

import { get, getAll } from "./api.js";
import { link, make, note } from "./dom.js";
import { cutNote } from "./table.js";

const LIMIT = 50; // matches of each kind

const SOURCES = [
  ["topics", "Topics", () => getAll("/v1/topics", { system: true }), (topic) => [topic.name, topic.name]],
  ["groups", "Consumer groups", () => getAll("/v1/consumer-groups"), (group) => [group.name, group.name]],
  ["clients", "Clients", () => getAll("/v1/clients"), (client) => [client.client_id, [client.client_id, ...client.addresses].join(" ")]],
  ["connections", "Connections", () => getAll("/v1/connections"), (one) => [one.replica ? `${one.replica}/${one.number}` : String(one.number), [one.address, one.via, one.subject].filter(Boolean).join(" ")]],
  ["brokers", "Brokers", () => get("/v1/brokers"), (broker) => [broker.name, [broker.name, ...broker.addresses.map((address) => address.address)].join(" ")]],
];

export function search(view, text) {
  const wanted = text.toLowerCase();
  for (const [kind, title, read, describe] of SOURCES) {
    view.panel(title, async () => {
      const list = await read();
      const found = list.items.map(describe).filter(([, words]) => words.toLowerCase().includes(wanted));
      const cut = cutNote(list, "only these are searched");
      if (!found.length) return [cut, note("nothing")];
      const more = found.length > LIMIT ? note(`the first ${LIMIT} of ${found.length.toLocaleString()} matches`) : null;
      return [cut, more, make("ul", { class: "found" }, found.slice(0, LIMIT).map(([name, words]) => make("li", {}, link(kind, name, kind === "connections" ? `${name} · ${words}` : name))))];
    }, { every: 0 });
  }
}
