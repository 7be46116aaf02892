// The page of a broker, and the list of brokers and name servers.

import { get, getAll } from "./api.js";
import { badge, facts, link, note } from "./dom.js";
import { millis, short } from "./format.js";
import { cutNote, table } from "./table.js";

const healthy = (broker) => badge(broker.healthy ? "reachable" : "out of reach", broker.healthy ? "good" : "bad");

export function broker(view, name) {
  const find = async () => {
    const found = (await get("/v1/brokers")).items.find((one) => one.name === name);
    if (!found) throw new Error(`there is no broker ${name}`);
    return found;
  };
  view.panel("Broker", async () => {
    const found = await find();
    return facts([["cluster", found.cluster], ["state", healthy(found)], ["answers", short(found.answers)], ["average latency", millis(found.average_milliseconds)], ["longest latency", millis(found.longest_milliseconds)]]);
  });
  view.panel("Processes", async () => table("Processes", [
    { name: "id", number: true, value: (address) => address.id },
    { name: "address", value: (address) => address.address },
    { name: "state", value: (address) => address.state, cell: (address) => badge(address.state, address.state === "unreachable" ? "bad" : "") },
    { name: "connections", number: true, value: (address) => address.connections },
    { name: "pending", number: true, value: (address) => address.pending },
    { name: "bytes in", number: true, value: (address) => address.bytes_in, cell: (address) => short(address.bytes_in) },
    { name: "bytes out", number: true, value: (address) => address.bytes_out, cell: (address) => short(address.bytes_out) },
    { name: "congested", value: (address) => address.congested, cell: (address) => (address.congested ? badge("congested", "bad") : "no") },
  ], (await find()).addresses), { wide: true });
  view.panel("Topics", async () => {
    const all = await getAll("/v1/topics");
    const topics = all.items.filter((topic) => topic.brokers.includes(name));
    return [cutNote(all, "only these are looked at"), table("Topics of the broker", [
      { name: "topic", value: (topic) => topic.name, cell: (topic) => link("topics", topic.name) },
      { name: "messages", value: (topic) => topic.kind },
    ], topics, "no topic")];
  }, { wide: true, every: 30000 });
}

export function brokerList(view) {
  view.panel("Brokers", async () => table("Brokers", [
    { name: "broker", value: (found) => found.name, cell: (found) => link("brokers", found.name) },
    { name: "cluster", value: (found) => found.cluster },
    { name: "state", value: (found) => found.healthy, cell: healthy },
    { name: "processes", number: true, value: (found) => found.addresses.length },
    { name: "average", number: true, value: (found) => found.average_milliseconds, cell: (found) => millis(found.average_milliseconds) },
    { name: "longest", number: true, value: (found) => found.longest_milliseconds, cell: (found) => millis(found.longest_milliseconds) },
  ], (await get("/v1/brokers")).items, "no broker is known"), { wide: true });
  view.panel("Name servers", async () => {
    const { items } = await get("/v1/name-servers");
    if (!items.length) return note("none: the broker is embedded");
    return table("Name servers", [
      { name: "address", value: (server) => server.address },
      { name: "state", value: (server) => server.state, cell: (server) => badge(server.state, server.state === "unreachable" ? "bad" : "") },
      { name: "pending", number: true, value: (server) => server.pending },
    ], items);
  }, { wide: true });
}
