// The page of a client: connections, requests, settings, thread stacks, disconnection.

import { get, part, write } from "./api.js";
import { connectionTable } from "./connection.js";
import { action } from "./dialog.js";
import { facts, link, links, make, note } from "./dom.js";
import { millis, short, span } from "./format.js";
import { table } from "./table.js";
import { tapPanel } from "./tap.js";

export function client(view, id) {
  const path = `/v1/clients/${part(id)}`;
  const stacks = make("pre", { tabindex: "0", "aria-label": "Thread stacks", hidden: true });
  view.panel("Client", async () => {
    const found = await get(path);
    return facts([["protocol", found.protocols.join(", ")], ["SDK", [found.language, found.version].filter(Boolean).join(" ")], ["addresses", found.addresses.join(", ")], ["heartbeat", found.heartbeat === null ? "none" : `${span(found.heartbeat)} ago`], ["telemetry stream", found.telemetry === null ? null : found.telemetry ? "open" : "none"], ["consumer groups", links("groups", found.consumer_groups)], ["producer groups", found.producer_groups.join(", ")]]);
  });
  const connections = view.panel("Connections", async () => connectionTable((await get("/v1/connections", { client_id: id, limit: 1000 })).items), { wide: true });
  view.panel("Consumption", () => consumption(id, path, stacks), { note: "as the client reports it", every: 15000, wide: true });
  const { tap, elements } = tapPanel({ client_id: id });
  view.panel("Live requests", () => elements, { wide: true, every: 0 });
  view.onclose = () => tap.stop();
  const disconnect = action("Disconnect", {
    question: () => `Close all connections of ${id}?`,
    details: () => ["The client may reconnect at once."],
    act: async () => {
      const { items } = await get("/v1/connections", { client_id: id, limit: 1000 });
      for (const { number, replica } of items) await write("DELETE", `/v1/connections/${part(number)}${replica ? `?replica=${part(replica)}` : ""}`);
      return `${items.length} connections closed`;
    },
    done: connections,
  });
  if (disconnect) view.actions.append(disconnect);
}

async function consumption(id, path, stacks) {
  const { consumer_groups: groups } = await get(path);
  if (!groups.length) return note("it consumes nothing");
  const parts = await Promise.all(groups.map(async (group) => {
    try {
      return reported(group, path, await get(`${path}/running-info`, { group }), stacks);
    } catch (error) {
      return [make("h4", {}, link("groups", group)), note(error.message, "warn")];
    }
  }));
  return [...parts.flat(), stacks];
}

function reported(group, path, info, stacks) {
  const show = async () => {
    stacks.hidden = false;
    try {
      stacks.textContent = (await get(`${path}/running-info`, { group, stack: true })).stack || "the client reports none";
    } catch (error) {
      stacks.textContent = error.message;
    }
  };
  return [
    make("h4", {}, link("groups", group)),
    table(`Rates of ${group}`, [
      { name: "topic", value: (rates) => rates.topic, cell: (rates) => link("topics", rates.topic) },
      { name: "consumed/s", number: true, value: (rates) => rates.consumed_per_second, cell: (rates) => short(rates.consumed_per_second) },
      { name: "failed/s", number: true, value: (rates) => rates.failed_per_second, cell: (rates) => short(rates.failed_per_second), kind: (rates) => (rates.failed_per_second ? "bad" : "") },
      { name: "failed in the last hour", number: true, value: (rates) => rates.failed_last_hour, kind: (rates) => (rates.failed_last_hour ? "bad" : "") },
      { name: "takes", number: true, value: (rates) => rates.milliseconds, cell: (rates) => millis(rates.milliseconds) },
    ], info.rates, "no rates"),
    info.queues.length ? note(`Queues: ${info.queues.map((queue) => `${queue.topic} ${queue.broker}:${queue.queue}`).join(", ")}`) : null,
    Object.keys(info.properties).length ? make("details", {}, make("summary", {}, "settings"), facts(Object.entries(info.properties))) : null,
    make("p", {}, make("button", { type: "button", onclick: show }, "Show thread stacks")),
  ].filter(Boolean);
}

export function clientList(view) {
  view.panel("Clients", async () => table("Clients", [
    { name: "client", value: (found) => found.client_id, cell: (found) => link("clients", found.client_id) },
    { name: "protocols", value: (found) => found.protocols.join(", ") },
    { name: "SDK", value: (found) => [found.language, found.version].filter(Boolean).join(" ") },
    { name: "addresses", value: (found) => found.addresses.join(", ") },
    { name: "consumes in", value: (found) => found.consumer_groups.join(), cell: (found) => links("groups", found.consumer_groups) },
    { name: "produces in", value: (found) => found.producer_groups.join(", ") },
    { name: "heartbeat", number: true, value: (found) => found.heartbeat, cell: (found) => span(found.heartbeat) },
  ], (await get("/v1/clients", { limit: 1000 })).items, "no client is connected"), { wide: true, note: "the first 1,000 by id" });
}
