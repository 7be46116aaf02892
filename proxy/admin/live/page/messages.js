// Messages: the browser of a topic, and the page of one message.

import { get, part, write } from "./api.js";
import { action } from "./dialog.js";
import { badge, facts, link, make, note } from "./dom.js";
import { moment } from "./format.js";
import { table } from "./table.js";

const STATES = { consumed: "good", waiting: "", filtered: "", retrying: "warn", dead: "bad", unknown: "" };

export function messageBrowser(view, topic) {
  const path = `/v1/topics/${part(topic)}/messages`;
  const field = (label, name, attributes = {}) => make("label", {}, `${label} `, make("input", { name, size: 12, ...attributes }));
  const form = make("form", { class: "row" }, field("key", "key"), field("tag", "tag"), field("SQL", "sql", { size: 24 }), field("broker", "broker"), field("queue", "queue", { type: "number", min: 0 }), field("offset", "offset", { type: "number", min: 0 }), field("from", "from", { type: "datetime-local", step: 1 }), field("to", "to", { type: "datetime-local", step: 1 }), make("button", {}, "Show"));
  const place = make("div");
  let next = null;

  const query = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value).map(([name, value]) => [name, name === "from" || name === "to" ? new Date(value).toISOString() : value]));
  const show = async (cursor = null) => {
    try {
      const page = await get(path, { ...query(), limit: 50, cursor });
      next = page.next;
      place.replaceChildren(list(topic, page.items), make("button", { type: "button", disabled: next === null, onclick: () => show(next) }, "Next page"));
    } catch (error) {
      place.replaceChildren(note(error.message, "bad"));
    }
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
  view.panel("Messages", async () => { await show(); return [form, place]; }, { wide: true, every: 0, note: "by key, tag, SQL, queue, offset or time" });
}

function list(topic, items) {
  return table(`Messages of ${topic}`, [
    { name: "message", value: (item) => item.message_id, cell: (item) => link("messages", `${topic}/${item.message_id}`, item.message_id) },
    { name: "stored", value: (item) => item.stored, cell: (item) => moment(item.stored) },
    { name: "place", value: (item) => `${item.broker}:${item.queue}:${item.offset}` },
    { name: "tag", value: (item) => item.tag },
    { name: "keys", value: (item) => (item.keys || []).join(" ") },
    { name: "group", value: (item) => item.message_group },
    { name: "bytes", number: true, value: (item) => item.bytes },
    { name: "body", value: (item) => item.preview },
  ], items, "no message");
}

// name: topic and message id, with a slash in between.
export function message(view, name) {
  const slash = name.indexOf("/");
  const [topic, id] = [name.slice(0, slash), name.slice(slash + 1)];
  const path = `/v1/topics/${part(topic)}/messages/${part(id)}`;
  const format = make("select", { "aria-label": "form of the body" }, ["auto", "text", "json", "hex", "base64"].map((kind) => make("option", {}, kind)));
  view.panel("Message", async () => {
    const found = await get(path);
    return facts([["topic", link("topics", found.topic)], ["place", `${found.broker}:${found.queue}:${found.offset}`], ["stored", moment(found.stored)], ["sent", moment(found.born)], ["from", found.born_host], ["tag", found.tag], ["keys", (found.keys || []).join(" ")], ["message group", found.message_group], ["retries", found.reconsumed]]);
  }, { every: 0 });
  view.panel("Where it went", async () => {
    const { groups } = await get(`${path}/groups`);
    return table("Consumer groups of the message", [
      { name: "group", value: (delivery) => delivery.group, cell: (delivery) => link("groups", delivery.group) },
      { name: "state", value: (delivery) => delivery.state, cell: (delivery) => badge(delivery.state, STATES[delivery.state]) },
      { name: "retries", number: true, value: (delivery) => delivery.retries },
    ], groups, "no group consumes the topic");
  }, { every: 0 });
  const body = view.panel("Body", async () => {
    const found = await get(path, { body: format.value });
    if (!found.body) return note("bodies are not shown to this role (setting admin.contents)");
    const text = found.body.format === "json" ? JSON.stringify(found.body.content, null, 2) : found.body.content;
    return [make("pre", { tabindex: "0", "aria-label": "Body" }, text), note(`${found.body.format}, ${found.body.bytes} bytes${found.body.truncated ? ", only the beginning is shown" : ""}`)];
  }, { wide: true, every: 0 });
  format.addEventListener("change", body);
  view.panel("Properties", async () => {
    const { properties } = await get(path);
    return properties ? facts(Object.entries(properties)) : note("properties are not shown to this role");
  }, { wide: true, every: 0 });
  const resend = action("Resend", {
    danger: false,
    question: () => `Send a copy to ${topic}?`,
    details: () => ["Every group of the topic receives it."],
    act: async () => `sent to ${(await write("POST", `${path}/resend`, {})).topic}`,
  });
  view.actions.append(make("label", {}, "body as ", format));
  if (resend && !topic.startsWith("%")) view.actions.append(resend);
}
