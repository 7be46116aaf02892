// The page of a consumer group: why it is behind, and how to help it.

import { get, part, write } from "./api.js";
import { deletion, groupDefinition, shownIfKnown } from "./definitions.js";
import { diagnose } from "./diagnosis.js";
import { deadLetters } from "./dead_letters.js";
import { badge, facts, link, links, make, note } from "./dom.js";
import { moment, short, span } from "./format.js";
import { state } from "./groups.js";
import { hourChart } from "./history.js";
import { resetForm } from "./reset.js";
import { table } from "./table.js";

export function group(view, name) {
  const path = `/v1/consumer-groups/${part(name)}`;
  const remove = deletion(view, { thing: `consumer group ${name}`, kind: "groups", path, warning: "Its offsets are lost. A group with members is not deleted." });
  view.panel("State", async () => {
    const found = await shownIfKnown(remove, () => get(path));
    return facts([["state", state(found)], ["members", found.members.length], ["lag", found.lag === null ? "–" : `${short(found.lag)} messages`], ["oldest waiting", span(found.lag_seconds)], ["consumes", found.rate === null ? null : `${short(found.rate)}/s`], ["last consumed", moment(found.last_consumed)], ["waiting retries", short(found.retry_backlog)], ["dead letters", found.dead_letters ? make("span", { class: "bad" }, short(found.dead_letters)) : short(found.dead_letters)], ["no answer from", (found.unanswered || []).join(", ")]]);
  });
  view.panel("Why it is behind", () => diagnose(name), { note: "by queues, members and their own statistics", every: 10000 });
  view.panel("Delivered messages per second", () => hourChart("Delivered messages per second in the last hour", { group: name }, [["delivered", "delivered", "delivered"]]), { note: "last hour", every: 15000 });
  view.panel("Lag by queue", () => lag(name, path), { every: 10000 });
  view.panel("Members", () => members(path), { wide: true });
  view.panel("Skew", async () => skew((await get(path)).skew), { note: "members that subscribe differently lose messages", every: 15000 });
  groupDefinition(view, name, path);
  resetForm(view, name, path);
  deadLetters(view, name, path);
}

async function lag(name, path) {
  const [progress, owners] = await Promise.all([get(`${path}/lag`), get(`${path}/queues`).catch(() => ({ queues: [] }))]);
  const owner = new Map(owners.queues.map((queue) => [`${queue.topic} ${queue.broker} ${queue.queue}`, queue.client_ids]));
  const ownersOf = (queue) => owner.get(`${queue.topic} ${queue.broker} ${queue.queue}`) || [];
  const rows = progress.queues.sort((one, other) => other.lag - one.lag);
  const silent = progress.unanswered.map((text) => note(`no answer: ${text}`, "bad"));
  return [...silent, table(`Lag of ${name}`, [
    { name: "topic", value: (queue) => queue.topic, cell: (queue) => link("topics", queue.topic) },
    { name: "queue", value: (queue) => `${queue.broker}:${String(queue.queue).padStart(5, "0")}`, cell: (queue) => `${queue.broker}:${queue.queue}` },
    { name: "lag", number: true, value: (queue) => queue.lag, kind: (queue) => (queue.lag ? "warn" : "") },
    { name: "member", value: (queue) => ownersOf(queue).join(), cell: (queue) => links("clients", ownersOf(queue)) },
    { name: "consumed", number: true, value: (queue) => queue.consumed },
    { name: "end", number: true, value: (queue) => queue.end },
    { name: "consumed until", value: (queue) => queue.consumed_until, cell: (queue) => moment(queue.consumed_until) },
  ], rows, "no offsets yet")];
}

async function members(path) {
  return table("Members", [
    { name: "client", value: (member) => member.client_id, cell: (member) => link("clients", member.client_id) },
    { name: "protocol", value: (member) => member.protocol, cell: (member) => member.protocol || badge("elsewhere") },
    { name: "address", value: (member) => member.address },
    { name: "SDK", value: (member) => `${member.language} ${member.version}` },
    { name: "heartbeat", number: true, value: (member) => member.heartbeat, cell: (member) => (member.heartbeat === null ? "–" : `${span(member.heartbeat)} ago`) },
    { name: "subscriptions", value: (member) => (member.subscriptions || []).map((item) => `${item.topic}: ${item.expression}`).join("; ") || "–" },
  ], (await get(path)).members, "no members");
}

function skew(topics) {
  if (!topics.length) return note("all members subscribe to the same");
  return topics.map(({ topic, variants }) => make("div", {}, make("p", {}, link("topics", topic)), make("ul", {}, variants.map((variant) => make("li", {}, make("code", {}, variant.expression === null ? "not subscribed" : variant.expression), " ", links("clients", variant.client_ids))))));
}
