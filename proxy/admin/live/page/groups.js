// Lists of consumer groups, and their states.

import { get } from "./api.js";
import { groupCreation } from "./definitions.js";
import { badge, link, make, note } from "./dom.js";
import { moment, short, span } from "./format.js";
import { cutNote, table } from "./table.js";

const STATES = { stuck: "bad", lagging: "warn", offline: "", online: "good" };

export const state = (group) => badge(group.state || "unknown", STATES[group.state] || "");

// Messages that wait for a group: new ones, and those that failed.
export const waiting = (group) => (group.lag || 0) + (group.retry_backlog || 0);

// 1: stuck, 2: lagging, 3: dead letters, failing, or messages that wait for members; 4: fine.
export const urgency = (group) => ["stuck", "lagging"].indexOf(group.state) + 1 || (group.dead_letters || group.failing || (group.state === "offline" && waiting(group)) ? 3 : 4);

export function groupTable(label, groups) {
  return table(label, [
    { name: "group", value: (group) => group.name, cell: (group) => link("groups", group.name) },
    { name: "state", value: urgency, cell: state },
    { name: "lag", number: true, value: (group) => group.lag, cell: (group) => short(group.lag), kind: (group) => (group.lag > 1000 ? "warn" : "") },
    { name: "oldest", number: true, value: (group) => group.lag_seconds, cell: (group) => span(group.lag_seconds) },
    { name: "rate/s", number: true, value: (group) => group.rate, cell: (group) => short(group.rate) },
    { name: "retries", number: true, value: (group) => group.retry_backlog, cell: (group) => short(group.retry_backlog), kind: (group) => (group.failing ? "warn" : "") },
    { name: "dead letters", number: true, value: (group) => group.dead_letters, cell: (group) => short(group.dead_letters), kind: (group) => (group.dead_letters ? "bad" : "") },
    { name: "members", number: true, value: (group) => group.members },
    { name: "skew", value: (group) => group.skewed, cell: (group) => (group.skewed ? badge("differs", "warn") : "–") },
    { name: "last consumed", value: (group) => group.last_consumed, cell: (group) => moment(group.last_consumed) },
  ], groups, "no consumer group");
}

const leftOutNote = (found) => (found.left_out ? note(`${found.left_out.toLocaleString()} groups are beyond admin.survey_groups: their state is unknown here, their own page has it`, "warn") : null);

// Said once: any group may have messages at a broker that does not answer.
export const unansweredNote = (found) => (found.unanswered.length ? note(`no answer from ${found.unanswered.join(", ")}: lag, retries and dead letters there are not known`, "bad") : null);

const ROWS = 100; // groups of a page

const FILTERS = { "": "every state", attention: "needs attention", stuck: "stuck", lagging: "lagging", offline: "offline", online: "online" };

const ORDERS = { name: "by name", "-urgency": "by urgency", "-lag": "by lag", "-lag_seconds": "by oldest message", "-rate": "by rate", "-retry_backlog": "by retries", "-dead_letters": "by dead letters", "-members": "by members" };

const choice = (label, names) => make("select", { "aria-label": label }, Object.entries(names).map(([value, words]) => make("option", { value }, words)));

export function groupList(view) {
  const filter = choice("state", FILTERS);
  const order = choice("order", ORDERS);
  let cursor = null; // of the page that is shown; null: the first
  let next = null;
  const place = view.panel("Consumer groups", async () => {
    const query = filter.value === "attention" ? { attention: true } : { state: filter.value };
    const found = await get("/v1/consumer-groups", { ...query, sort: order.value, limit: ROWS, cursor });
    next = found.next;
    return [cutNote(found, "the other pages have the rest"), leftOutNote(found), unansweredNote(found), groupTable("Consumer groups", found.items), pages()];
  }, { wide: true, note: "of all brokers, with and without members" });
  const turn = (to) => {
    cursor = to;
    return place();
  };
  const pages = () => (cursor || next ? make("p", { class: "row" },
    make("button", { type: "button", disabled: cursor === null, onclick: () => turn(null) }, "First page"),
    make("button", { type: "button", disabled: next === null, onclick: () => turn(next) }, "Next page")) : null);
  [filter, order].forEach((select) => select.addEventListener("change", () => turn(null)));
  view.actions.append(filter, order);
  groupCreation(view);
}
