// The page of a replica: version, health, settings, closed connections, protocol errors, writes.

import { get, part, write } from "./api.js";
import { closed } from "./connection.js";
import { action } from "./dialog.js";
import { badge, facts, note } from "./dom.js";
import { moment, span } from "./format.js";
import { table } from "./table.js";

// The values of the replica that are not shown as they are.
const WORDS = { started: moment, uptime: span };

export function replica(view, name) {
  // The replica that serves the page answers without being named; others are asked through it, and unknown ones are
  // refused by it.
  const query = async () => {
    const live = await get("/v1/live");
    return name === live.replica && !live.replicas ? {} : { replica: name };
  };
  const ask = async (path, more = {}) => get(path, { ...(await query()), ...more });
  view.panel("Replica", async () => {
    const found = await ask("/v1/version");
    return facts(Object.entries(found).filter(([, value]) => typeof value !== "object").map(([key, value]) => [key.replaceAll("_", " "), (WORDS[key] || String)(value)]));
  });
  view.panel("Closed connections", async () => closed(await query()));
  view.panel("Protocol errors", async () => table("Protocol errors", [
    { name: "time", value: (error) => error.time, cell: (error) => moment(error.time) },
    { name: "kind", value: (error) => error.kind },
    { name: "address", value: (error) => error.address },
    { name: "text", value: (error) => error.text },
  ], (await ask("/v1/errors", { limit: 50 })).items, "none so far"));
  view.panel("Writes", async () => table("Writes", [
    { name: "time", value: (entry) => entry.time, cell: (entry) => moment(entry.time) },
    { name: "caller", value: (entry) => entry.caller },
    { name: "request", value: (entry) => `${entry.method} ${entry.path}` },
    { name: "status", number: true, value: (entry) => entry.status, kind: (entry) => (entry.status >= 400 ? "bad" : "") },
  ], (await ask("/v1/audit", { limit: 50 })).items, "none so far"), { wide: true, note: "the audit of this replica" });
  view.panel("Settings", async () => table("Settings", [
    { name: "setting", value: (setting) => setting.key },
    { name: "value", value: (setting) => (typeof setting.value === "string" ? setting.value : JSON.stringify(setting.value)) },
    { name: "from", value: (setting) => setting.origin, cell: (setting) => badge(setting.origin || "default") },
  ], (await ask("/v1/config")).items), { wide: true, every: 30000 });
  const change = (words, danger, path, question, ...details) => action(words, {
    danger,
    question: () => question,
    details: () => details,
    act: async () => {
      const { replica: other } = await query();
      const state = await write("POST", other ? `${path}?replica=${part(other)}` : path);
      return state.draining ? "the replica drains" : "the replica accepts clients";
    },
  });
  const drain = change("Drain", true, "/v1/drain", `Send the clients of ${name} elsewhere?`, "Its readiness fails until it is resumed; it keeps serving.");
  if (drain) view.actions.append(drain, change("Resume", false, "/v1/resume", `Let ${name} accept clients again?`));
}

export function replicaList(view) {
  view.panel("Replicas", async () => {
    const live = await get("/v1/live");
    if (!live.replicas) return [facts([["this replica", live.replica]]), note("Set admin.peers to see all replicas as one.")];
    return table("Replicas", [
      { name: "replica", value: (one) => one.name },
      { name: "address", value: (one) => one.address },
      { name: "state", value: (one) => one.answers, cell: (one) => badge(one.answers ? "answers" : "no answer", one.answers ? "good" : "bad") },
    ], live.replicas);
  }, { wide: true });
}
