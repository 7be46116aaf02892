// The reasons why a consumer group is behind, the most likely first.

import { get, part } from "./api.js";
import { link, make, note } from "./dom.js";
import { count, millis, short, span } from "./format.js";
import { waiting } from "./groups.js";

const MAX_MEMBERS = 20; // members that are asked for their statistics
const MAX_TOPICS = 5; // topics whose permissions are read

export async function diagnose(name) {
  const path = `/v1/consumer-groups/${part(name)}`;
  const [group, progress, owners] = await Promise.all([get(path), get(`${path}/lag`), get(`${path}/queues`).catch(() => null)]);
  const infos = await Promise.all(group.members.slice(0, MAX_MEMBERS).map((member) => get(`/v1/clients/${part(member.client_id)}/running-info`, { group: name }).catch(() => null)));
  const behind = [...new Set(progress.queues.filter(isBehind).map((queue) => queue.topic))].slice(0, MAX_TOPICS);
  const definition = waiting(group) ? await get(`${path}/definition`).catch(() => null) : null;
  const topics = await Promise.all(behind.map((topic) => get(`/v1/topics/${part(topic)}`).catch(() => null)));
  const findings = [
    ...silent(group), ...switchedOff(group, definition), ...unreadable(topics.filter(Boolean)), ...membership(group), ...failing(group, infos.filter(Boolean)), ...queues(progress, owners, group), ...skewed(group), ...rest(group),
  ];
  if (!findings.length) return note(group.lag ? "members consume; the lag is recent" : "it is not behind");
  return make("ol", { class: "findings" }, findings.map((parts) => make("li", {}, ...parts)));
}

function silent(group) {
  const brokers = group.unanswered || [];
  return brokers.length ? [[make("b", { class: "bad" }, "No answer"), ` from ${brokers.join(", ")}: lag, retries and dead letters are not known.`]] : [];
}

// Without retries, as the lag of a group everywhere.
const isBehind = (queue) => queue.lag && !queue.topic.startsWith("%");

function switchedOff(group, definition) {
  if (!definition || definition.enabled) return [];
  return [["It is ", make("b", { class: "bad" }, "disabled"), ": brokers give it no messages while its definition says that it may not consume."]];
}

function* unreadable(topics) {
  for (const topic of topics) {
    const closed = topic.brokers.filter((broker) => !broker.permission.includes("R")).map((broker) => broker.broker);
    if (closed.length) yield ["Topic ", link("topics", topic.name), " is ", make("b", { class: "bad" }, "not readable"), ` at ${closed.join(", ")}: its permission there lacks R.`];
  }
}

function membership(group) {
  if (group.members.length || !waiting(group)) return [];
  return [["It has ", make("b", {}, "no member"), `, and ${count(waiting(group), "message")} wait. Start a consumer.`]];
}

function* failing(group, infos) {
  for (const info of infos) {
    for (const rates of info.rates) {
      if (rates.failed_per_second || rates.failed_last_hour) {
        yield ["Member ", link("clients", info.client_id), make("b", {}, " fails"), ` on messages of ${rates.topic}: ${short(rates.failed_per_second)}/s, ${short(rates.failed_last_hour)} in the last hour.`];
      }
      if (rates.milliseconds > 1000) {
        yield ["Member ", link("clients", info.client_id), make("b", {}, " is slow"), `: a message of ${rates.topic} takes ${millis(rates.milliseconds)}.`];
      }
    }
  }
}

function* queues(progress, owners, group) {
  const behind = progress.queues.filter(isBehind).sort((one, other) => other.lag - one.lag);
  if (!behind.length) return;
  const [worst] = behind;
  const lag = behind.reduce((sum, queue) => sum + queue.lag, 0);
  const where = `${worst.broker}:${worst.queue} of ${worst.topic}`;
  const found = owners && owners.queues.find((queue) => queue.topic === worst.topic && queue.broker === worst.broker && queue.queue === worst.queue);
  const words = ["The longest queue is ", make("b", {}, where), `: ${count(worst.lag, "message")} of ${short(lag)}`];
  if (found) yield [...words, "; its member is ", ...found.client_ids.flatMap((id) => [link("clients", id), " "])];
  else yield [...words, group.members.length ? "; members share it, or none has reported it." : "."];
  const share = worst.lag / lag;
  if (behind.length > 1 && share > 0.8) yield [`That queue alone has ${Math.round(100 * share)} % of the lag: one message group, or its member, is the reason.`];
}

function* skewed(group) {
  for (const { topic } of group.skew) yield ["Members subscribe to ", link("topics", topic), make("b", {}, " differently"), ": brokers keep one of the subscriptions, and messages are lost."];
}

function* rest(group) {
  if (group.state === "stuck") yield [make("b", {}, "Stuck"), ": a queue has had waiting messages for two minutes, and none was consumed."];
  if (group.retry_backlog) yield [make("b", { class: group.failing ? "bad" : "" }, `${count(group.retry_backlog, "message")} failed`), " and wait for their next delivery."];
  if (group.dead_letters) yield [make("b", { class: "bad" }, count(group.dead_letters, "dead letter")), ": failed in all deliveries; inspect and resend below."];
  if (group.members.length && group.rate !== null && group.lag > 1000 && group.rate > 0) yield [`At ${short(group.rate)} messages per second, the lag would take ${span(group.lag / group.rate)} without new messages.`];
}
