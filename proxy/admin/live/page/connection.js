// The page of a connection, and lists of connections.

import { get, part, write } from "./api.js";
import { action } from "./dialog.js";
import { facts, link, links, make, note } from "./dom.js";
import { moment, short, span } from "./format.js";
import { table } from "./table.js";

// A connection's address on the page: numbers are unique in their replica only.
const place = (connection) => (connection.replica ? `${connection.replica}/${connection.number}` : String(connection.number));

export function connectionTable(connections) {
  return table("Connections", [
    { name: "number", value: (connection) => place(connection), cell: (connection) => link("connections", place(connection)) },
    { name: "address", value: (connection) => connection.address },
    { name: "protocol", value: (connection) => connection.protocol },
    { name: "TLS", value: (connection) => connection.tls || "–" },
    { name: "clients", value: (connection) => connection.clients.length, cell: (connection) => links("clients", connection.clients.map((client) => client.client_id).filter(Boolean)) },
    { name: "in flight", number: true, value: (connection) => connection.in_flight },
    { name: "requests", number: true, value: (connection) => connection.requests, cell: (connection) => short(connection.requests) },
    { name: "bytes in", number: true, value: (connection) => connection.bytes_in, cell: (connection) => short(connection.bytes_in) },
    { name: "bytes out", number: true, value: (connection) => connection.bytes_out, cell: (connection) => short(connection.bytes_out) },
    { name: "open", number: true, value: (connection) => connection.age, cell: (connection) => span(connection.age) },
    { name: "idle", number: true, value: (connection) => connection.idle, cell: (connection) => span(connection.idle) },
  ], connections, "no connection");
}

export function connection(view, name) {
  const slash = name.lastIndexOf("/");
  const [replica, number] = slash < 0 ? [null, name] : [name.slice(0, slash), name.slice(slash + 1)];
  const path = `/v1/connections/${part(number)}`;
  const refresh = view.panel("Connection", async () => {
    const found = await get(path, { replica });
    return facts([["protocol", found.protocol], ["client", found.address], ["listener", `${found.listener} (${found.local})`], ["through", found.via], ["TLS", found.tls || "none"], ["certificate", found.subject], ["in flight", found.in_flight], ["requests", short(found.requests)], ["bytes in", short(found.bytes_in)], ["bytes out", short(found.bytes_out)], ["open for", span(found.age)], ["idle for", span(found.idle)], ["replica", found.replica], ["worker", found.worker]]);
  }, { every: 2000 });
  view.panel("Clients", async () => table("Clients of the connection", [
    { name: "client", value: (client) => client.client_id, cell: (client) => (client.client_id ? link("clients", client.client_id) : "not identified") },
    { name: "SDK", value: (client) => [client.language, client.version].filter(Boolean).join(" ") },
    { name: "consumes in", value: (client) => client.consumer_groups.join(), cell: (client) => links("groups", client.consumer_groups) },
    { name: "produces in", value: (client) => client.producer_groups.join(", ") },
  ], (await get(path, { replica })).clients, "no client has identified itself"));
  const disconnect = action("Disconnect", {
    question: () => `Close connection ${name}?`,
    details: () => ["The client may reconnect at once."],
    act: async () => { await write("DELETE", replica ? `${path}?replica=${part(replica)}` : path); return "closed"; },
    done: refresh,
  });
  if (disconnect) view.actions.append(disconnect);
}

export function connectionList(view) {
  const protocol = make("select", { "aria-label": "protocol" }, [["", "both protocols"], ["remoting", "remoting"], ["grpc", "gRPC"]].map(([value, words]) => make("option", { value }, words)));
  const refresh = view.panel("Open connections", async () => {
    const { items, total } = await get("/v1/connections", { limit: 1000, sort: "-in_flight", protocol: protocol.value });
    return [items.length < total ? note(`${items.length} of ${total} are shown`) : null, connectionTable(items)];
  }, { wide: true });
  protocol.addEventListener("change", refresh);
  view.actions.append(protocol);
  view.panel("Closed connections", () => closed(), { wide: true });
}

export async function closed(query = {}) {
  return table("Closed connections", [
    { name: "closed", value: (end) => end.closed, cell: (end) => moment(end.closed) },
    { name: "client", value: (end) => end.client_id || end.address },
    { name: "protocol", value: (end) => end.protocol },
    { name: "cause", value: (end) => end.cause },
    { name: "open", number: true, value: (end) => end.age, cell: (end) => span(end.age) },
    { name: "requests", number: true, value: (end) => end.requests },
  ], (await get("/v1/closed-connections", { limit: 100, ...query })).items, "none so far");
}
