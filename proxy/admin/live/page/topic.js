// The page of a topic: queues, groups, rates, messages, producers.

import { get, PAGE, part } from "./api.js";
import { deletion, shownIfKnown, topicCreation, topicDefinition } from "./definitions.js";
import { facts, link, make, note } from "./dom.js";
import { count, moment } from "./format.js";
import { groupTable } from "./groups.js";
import { hourChart } from "./history.js";
import { messageBrowser } from "./messages.js";
import { tapPanel } from "./tap.js";
import { cutNote, table } from "./table.js";

const SAMPLE = 8; // newest messages whose producers are shown

export function topic(view, name) {
  const path = `/v1/topics/${part(name)}`;
  const remove = deletion(view, { thing: `topic ${name}`, kind: "topics", path, warning: "All its messages are lost." });
  view.panel("Topic", async () => {
    const found = await shownIfKnown(remove, () => get(path));
    const total = (field) => found.brokers.reduce((sum, broker) => sum + broker[field], 0);
    return facts([["type of messages", found.kind], ["order", found.order], ["brokers", found.brokers.length], ["queues to read", total("read_queues")], ["queues to write", total("write_queues")]]);
  }, { every: 30000 });
  view.panel("Messages per second", () => hourChart("Messages per second in the last hour", { topic: name }, [["sent", "remoting", "sent"], ["delivered", "delivered", "delivered"], ["failed", "bad", "failed requests"]]), { note: "last hour", every: 15000 });
  view.panel("Brokers", async () => table("Brokers of the topic", [
    { name: "broker", value: (broker) => broker.broker, cell: (broker) => link("brokers", broker.broker) },
    { name: "addresses", value: (broker) => Object.entries(broker.addresses).map(([id, address]) => `${id}: ${address}`).join(", ") },
    { name: "permission", value: (broker) => broker.permission },
    { name: "queues to read", number: true, value: (broker) => broker.read_queues },
    { name: "to write", number: true, value: (broker) => broker.write_queues },
  ], (await get(path)).brokers, "no broker has it"), { every: 30000 });
  topicDefinition(view, name, path);
  view.panel("Producers", () => producers(name, path), { note: `of the newest ${SAMPLE} messages`, every: 15000 });
  view.panel("Queues", () => queues(path), { wide: true, every: 10000 });
  view.panel("Consumer groups", async () => {
    const found = await get("/v1/consumer-groups", { topic: name, limit: PAGE });
    return [cutNote(found), groupTable("Consumer groups of the topic", found.items)];
  }, { wide: true, every: 10000 });
  messageBrowser(view, name);
  const { tap, elements } = tapPanel({ topic: name });
  view.panel("Live requests", () => elements, { wide: true, every: 0 });
  view.onclose = () => tap.stop();
}

async function queues(path) {
  const found = await get(`${path}/queues`);
  return [
    note(`${count(found.messages, "stored message")} in ${count(found.queues.length, "queue")}`),
    found.unanswered.length ? note(`no answer from ${found.unanswered.join(", ")}`, "bad") : null,
    table("Queues", [
      { name: "queue", value: (queue) => queue.queue, cell: (queue) => `${queue.broker}:${queue.queue}` },
      { name: "first offset", number: true, value: (queue) => queue.first },
      { name: "end offset", number: true, value: (queue) => queue.end },
      { name: "messages", number: true, value: (queue) => queue.messages },
      { name: "last stored", value: (queue) => queue.last_stored, cell: (queue) => moment(queue.last_stored) },
    ], found.queues, "no queue"),
  ];
}

// A message may be deleted after it was listed.
function expired(error) {
  if (error.status === 404) return null;
  throw error;
}

async function producers(name, path) {
  const { items } = await get(`${path}/messages`, { limit: SAMPLE });
  const details = await Promise.all(items.map((item) => get(`${path}/messages/${part(item.message_id)}`).catch(expired)));
  const [{ items: clients }, { items: connections }] = await Promise.all([get("/v1/clients", { limit: 1000 }), get("/v1/connections", { limit: 1000 })]);
  const byHost = new Map();
  for (const detail of details.filter(Boolean)) {
    const known = byHost.get(detail.born_host) || { host: detail.born_host, messages: 0, born: detail.born };
    known.messages += 1;
    byHost.set(detail.born_host, known);
  }
  const connected = new Map(connections.flatMap((connection) => connection.clients.filter((client) => client.client_id).map((client) => [connection.address, client])));
  const rows = [...byHost.values()].map((row) => ({ ...row, client: connected.get(row.host) }));
  // A gRPC producer is a member of the producer group with the topic's name.
  for (const client of clients.filter((client) => client.producer_groups.includes(name))) {
    if (!rows.some((row) => row.client && row.client.client_id === client.client_id)) rows.push({ host: client.addresses.join(", "), messages: 0, client });
  }
  if (!rows.length) return note("no message, and no producer that is connected");
  return table("Producers", [
    { name: "address", value: (row) => row.host },
    { name: "client", value: (row) => row.client && row.client.client_id, cell: (row) => (row.client ? link("clients", row.client.client_id) : "not connected") },
    { name: "groups", value: (row) => (row.client ? row.client.producer_groups.join(", ") : "") },
    { name: "messages", number: true, value: (row) => row.messages },
  ], rows);
}

export function topicList(view) {
  const system = make("input", { type: "checkbox" });
  const refresh = view.panel("Topics", async () => {
    const topics = await get("/v1/topics", { limit: PAGE, system: system.checked || null });
    return [cutNote(topics), table("Topics", [
      { name: "topic", value: (found) => found.name, cell: (found) => link("topics", found.name) },
      { name: "type of messages", value: (found) => found.kind },
      { name: "brokers", value: (found) => found.brokers.join(", ") },
      { name: "read queues", number: true, value: (found) => found.read_queues },
      { name: "write queues", number: true, value: (found) => found.write_queues },
    ], topics.items, "no topic")];
  }, { wide: true, every: 30000 });
  system.addEventListener("change", refresh);
  view.actions.append(make("label", {}, system, " with system topics"));
  topicCreation(view);
}
