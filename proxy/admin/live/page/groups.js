// Lists of consumer groups, and their states.

import { get, PAGE } from "./api.js";
import { groupCreation } from "./definitions.js";
import { badge, link, make, note } from "./dom.js";
import { moment, short, span } from "./format.js";
import { cutNote, table } from "./table.js";

const STATES = { stuck: "bad", lagging: "warn", offline: "", online: "good" };

export const state = (group) => badge(group.state || "unknown", STATES[group.state] || "");

const unanswered = (group) => Boolean(group.unanswered && group.unanswered.length);

// Messages that wait for a group: new ones, and those that failed.
export const waiting = (group) => (group.lag || 0) + (group.retry_backlog || 0);

// 1: stuck, 2: lagging, 3: dead letters, messages that wait for members, or brokers that do not answer; 4: fine.
export const urgency = (group) => ["stuck", "lagging"].indexOf(group.state) + 1 || (unanswered(group) || group.dead_letters || (group.state === "offline" && waiting(group)) ? 3 : 4);

export function groupTable(label, groups) {
  return table(label, [
    { name: "group", value: (group) => group.name, cell: (group) => link("groups", group.name) },
    { name: "state", value: urgency, cell: state },
    { name: "members", number: true, value: (group) => group.members },
    { name: "lag", number: true, value: (group) => group.lag, cell: (group) => short(group.lag), kind: (group) => (group.lag > 1000 ? "warn" : "") },
    { name: "oldest", number: true, value: (group) => group.lag_seconds, cell: (group) => span(group.lag_seconds) },
    { name: "rate/s", number: true, value: (group) => group.rate, cell: (group) => short(group.rate) },
    { name: "retries", number: true, value: (group) => group.retry_backlog, cell: (group) => short(group.retry_backlog) },
    { name: "dead letters", number: true, value: (group) => group.dead_letters, cell: (group) => short(group.dead_letters), kind: (group) => (group.dead_letters ? "bad" : "") },
    { name: "skew", value: (group) => group.skewed, cell: (group) => (group.skewed ? badge("differs", "warn") : "–") },
    { name: "last consumed", value: (group) => group.last_consumed, cell: (group) => moment(group.last_consumed) },
  ], groups, "no consumer group");
}

const leftOutNote = (found) => (found.left_out ? note(`${found.left_out.toLocaleString()} groups are beyond admin.survey_groups: their state is unknown here, their own page has it`, "warn") : null);

export function groupList(view) {
  const filter = make("select", { "aria-label": "state" }, ["", "stuck", "lagging", "offline", "online"].map((name) => make("option", { value: name }, name || "every state")));
  const place = view.panel("Consumer groups", async () => {
    const found = await get("/v1/consumer-groups", { limit: PAGE, state: filter.value });
    return [cutNote(found), leftOutNote(found), groupTable("Consumer groups", found.items)];
  }, { wide: true, note: "of all brokers, with and without members" });
  filter.addEventListener("change", place);
  view.actions.append(filter);
  groupCreation(view);
}
