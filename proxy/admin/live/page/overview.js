// The overview: figures of each second, and what needs attention.

import { $, badge, fill, link, links, make, note } from "./dom.js";
import { get, PAGE } from "./api.js";
import { areas, lines, spark } from "./charts.js";
import { load } from "./crane.js";
import { report } from "./dialog.js";
import { clock, millis, round, short, span } from "./format.js";
import { state as groupState, unansweredNote, urgency } from "./groups.js";
import { table } from "./table.js";

const MINUTES = 180; // seconds in the charts
const STEPS = 360; // ten seconds each
const MAX_GROUPS = 30; // rows of consumer groups

let seconds = [];
let live = null;
let hour = null; // steps of the last hour, while the charts show it
let progress = null; // consumer groups that need attention or have traffic; null before the first answer
let needy = null; // the first page of groups that need attention
let groupsError = null; // the reason why they are not known

const both = (second, name) => second.remoting[name] + second.grpc[name];

export async function look() {
  const since = seconds.length ? seconds[seconds.length - 1].at : 0;
  const query = new URLSearchParams({ since, topic: $("f-topic").value, group: $("f-group").value });
  live = await get(`/v1/live?${query}`);
  if (seconds.length && live.seconds.length && live.seconds[0].at > seconds[seconds.length - 1].at + 1) seconds = [];
  seconds = seconds.concat(live.seconds).slice(-MINUTES);
  show();
  return live;
}

// Tables that change slowly.
export async function lookAround() {
  await Promise.all([lookAtClients(), lookAtGroups(), lookAtHistory()]);
}

async function lookAtGroups() {
  try {
    const wanted = { attention: true, sort: "-urgency", limit: $("f-group").value ? PAGE : MAX_GROUPS };
    const name = (live ? live.groups : []).map((group) => group.name);
    const [first, busy] = await Promise.all([get("/v1/consumer-groups", wanted), name.length ? get("/v1/consumer-groups", { name, limit: PAGE }) : { items: [] }]);
    const found = new Map([...first.items, ...busy.items].map((group) => [group.name, group]));
    [progress, needy, groupsError] = [[...found.values()], first, null];
  } catch (error) {
    [progress, needy, groupsError] = [[], null, error.message];
  }
}

async function lookAtHistory() {
  try {
    hour = $("range").value === "hour" ? (await get("/v1/history")).items : null;
  } catch (error) {
    hour = null;
    report(`the last hour is not shown: ${error.message}`, "bad");
  }
}

async function lookAtClients() {
  let clients;
  try {
    clients = await get("/v1/clients", { limit: 50 });
  } catch (error) {
    fill($("t-clients"), [note(error.message, "bad")]);
    return;
  }
  fill($("t-clients"), [table("Clients", [
    { name: "client", value: (client) => client.client_id, cell: (client) => link("clients", client.client_id) },
    { name: "protocols", value: (client) => client.protocols.join(", ") },
    { name: "SDK", value: (client) => [client.language, client.version].filter(Boolean).join(" ") || "–" },
    { name: "groups", value: (client) => client.consumer_groups.join(), cell: (client) => links("groups", client.consumer_groups) },
  ], clients.items, "no client is connected")]);
}

export function state(kind, words) {
  const element = $("state");
  element.className = `state ${kind}`;
  if (element.textContent !== words) element.textContent = words;
}

function show() {
  const reasons = live.reasons.join("; ");
  const silent = (live.replicas || []).filter((replica) => !replica.answers).map((replica) => replica.address);
  if (live.draining) state("warn", "draining");
  else if (!live.ready) state("bad", `not ready: ${reasons}`);
  else if (silent.length) state("warn", `no answer from ${silent.join(", ")}`);
  else if (reasons) state("warn", reasons);
  else state("good", "ready");
  document.title = `Gantry · ${live.replica}`;
  $("replica").textContent = `${live.replica} · ${live.release} · ${live.listeners.join(", ")} · up ${span(live.uptime)}`;
  if (seconds.length) load(seconds[seconds.length - 1], live.ready);
  if ($("overview").hidden) return;
  tiles();
  charts();
  tables();
  bars($("codes"), live.codes);
  bars($("negotiations"), live.negotiations);
  fill($("events"), live.events.map((event) => make("li", {}, make("time", {}, clock(event.at)),
    make("span", { class: event.kind === "error" ? "bad" : "" }, event.text + (event.first ? ` [${event.first}]` : "")))));
}

function tiles() {
  const last = seconds.slice(-5);
  const mean = (name) => (last.length ? last.reduce((sum, second) => sum + both(second, name), 0) / last.length : 0);
  $("n-requests").textContent = `${short(mean("requests"))}/s`;
  $("n-sent").textContent = `${short(mean("sent"))}/s`;
  $("n-delivered").textContent = `${short(mean("delivered"))}/s`;
  const share = mean("requests") ? (100 * mean("failed")) / mean("requests") : 0;
  $("n-errors").textContent = `${round(share)} %`;
  $("n-errors").className = share >= 1 ? "bad" : "";
  const newest = [...last].reverse().find((second) => second.p50 !== null);
  $("n-p50").textContent = millis(newest && newest.p50);
  $("n-p99").textContent = millis(newest && newest.p99);
  $("n-connections").textContent = short(live.connections.remoting + live.connections.grpc);
  $("n-clients").textContent = short(live.clients);
  $("n-attention").textContent = needy ? String(needy.total) : "–";
  $("n-attention").className = needy && needy.total ? "bad" : "";
}

function charts() {
  const steps = hour;
  const length = steps ? STEPS : MINUTES;
  const rows = (of, ofSecond) => (steps ? steps.map(of) : seconds.map(ofSecond));
  areas($("c-requests"), rows((step) => [step.requests - step.grpc, step.grpc], (second) => [second.remoting.requests, second.grpc.requests]), ["remoting", "grpc"], short, length);
  areas($("c-errors"), rows((step) => [step.failed], (second) => [both(second, "failed")]), ["bad"], short, length);
  lines($("c-latency"), rows((step) => [step.p50, step.p99], (second) => [second.p50, second.p99]), ["p50", "p99"], millis, length);
}

function tables() {
  fill($("t-topics"), [table("Busiest topics", [
    { name: "topic", value: (topic) => topic.name, cell: (topic) => link("topics", topic.name) },
    { name: "trend", cell: (topic) => spark(topic.trend) },
    ...[["requests/s", "requests"], ["in/s", "sent"], ["out/s", "delivered"]].map(([name, field]) => ({ name, number: true, value: (topic) => topic[field], cell: (topic) => short(topic[field]) })),
    { name: "bytes/s", number: true, value: (topic) => topic.bytes_in + topic.bytes_out, cell: (topic) => short(topic.bytes_in + topic.bytes_out) },
    { name: "errors/s", number: true, value: (topic) => topic.failed, cell: (topic) => short(topic.failed), kind: (topic) => (topic.failed ? "bad" : "") },
  ], live.topics, "no traffic in the last minute")]);
  const unanswered = new Set(needy ? needy.unanswered : []);
  fill($("t-groups"), [needy && unansweredNote(needy), groupsError ? note(groupsError, "bad") : table("Groups that need attention or have traffic", [
    { name: "group", value: ({ group }) => group.name, cell: ({ group }) => link("groups", group.name) },
    { name: "state", value: ({ group }) => group.state, cell: ({ group }) => groupState(group) },
    // The reasons for attention first: narrow screens show only the first columns.
    { name: "lag", number: true, value: ({ group }) => group.lag, cell: ({ group }) => short(group.lag), kind: ({ group }) => (group.lag > 1000 ? "warn" : "") },
    { name: "oldest", number: true, value: ({ group }) => group.lag_seconds, cell: ({ group }) => span(group.lag_seconds) },
    { name: "retries", number: true, value: ({ group }) => group.retry_backlog, cell: ({ group }) => short(group.retry_backlog), kind: ({ group }) => (group.failing ? "warn" : "") },
    { name: "dead letters", number: true, value: ({ group }) => group.dead_letters, cell: ({ group }) => short(group.dead_letters), kind: ({ group }) => (group.dead_letters ? "bad" : "") },
    { name: "out/s", number: true, value: ({ group, traffic }) => (traffic ? traffic.delivered : group.rate), cell: ({ group, traffic }) => short(traffic ? traffic.delivered : group.rate) },
    { name: "members", number: true, value: ({ group }) => group.members, cell: ({ group }) => `${group.members}${group.skewed ? " ⚠" : ""}`, kind: ({ group }) => (group.skewed ? "warn" : "") },
    { name: "trend", cell: ({ traffic }) => spark(traffic ? traffic.trend : []) },
  ], consumerGroups(), progress ? "no group has traffic or needs attention" : "loading…")].filter(Boolean));
  fill($("t-brokers"), [table("Brokers", [
    { name: "broker", value: (broker) => broker.name, cell: (broker) => link("brokers", broker.name) },
    { name: "state", value: (broker) => broker.healthy, cell: (broker) => brokerState(broker, unanswered) },
    { name: "addresses", value: (broker) => broker.addresses.map((address) => `${address.id}: ${address.address} (${address.state})`).join(", ") },
    { name: "average", number: true, value: (broker) => broker.average_milliseconds, cell: (broker) => millis(broker.average_milliseconds) },
    { name: "longest", number: true, value: (broker) => broker.longest_milliseconds, cell: (broker) => millis(broker.longest_milliseconds) },
  ], live.brokers)]);
  const replicas = live.replicas || [{ name: live.replica, address: "this one", answers: true }];
  fill($("t-replicas"), [table("Replicas", [
    { name: "replica", value: (replica) => replica.name, cell: (replica) => (replica.answers ? link("replicas", replica.name) : replica.name || "–") },
    { name: "address", value: (replica) => replica.address },
    { name: "state", value: (replica) => replica.answers, cell: (replica) => badge(replica.answers ? "answers" : "no answer", replica.answers ? "good" : "bad") },
  ], replicas)]);
}

function brokerState(broker, unanswered) {
  if (!broker.healthy) return badge("out of reach", "bad");
  return unanswered.has(broker.name) ? badge("no answer", "bad") : badge("reachable", "good");
}

// Consumer groups that need attention, then those with traffic.
function consumerGroups() {
  const traffic = new Map(live.groups.map((group) => [group.name, group]));
  const names = new Set(needy ? needy.items.map((group) => group.name) : []);
  const rank = (group) => (names.has(group.name) ? Math.min(urgency(group), 3) : 4);
  const wanted = $("f-group").value.toLowerCase();
  return (progress || [])
    .filter((group) => group.name.toLowerCase().includes(wanted) && (traffic.has(group.name) || names.has(group.name)))
    .map((group) => ({ group, traffic: traffic.get(group.name) }))
    .sort((one, other) => rank(one.group) - rank(other.group) || other.group.lag - one.group.lag)
    .slice(0, MAX_GROUPS);
}

function bars(list, counts) {
  const pairs = Object.entries(counts).filter(([, count]) => count).sort((a, b) => b[1] - a[1]).slice(0, 12);
  const most = Math.max(1, ...pairs.map(([, count]) => count));
  fill(list, pairs.map(([name, count]) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${(100 * count) / most}%`;
    return make("li", {}, make("span", { class: "name", title: name }, name), make("span", {}, bar), make("span", {}, short(count)));
  }));
}
