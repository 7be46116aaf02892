// The page of one message: place, body, properties, where it went, trace.

import { get, part, write } from "./api.js";
import { action, retryChoice } from "./dialog.js";
import { badge, facts, link, make, note } from "./dom.js";
import { millis, moment } from "./format.js";
import { indented } from "./json.js";
import { table } from "./table.js";

const STATES = { consumed: "good", waiting: "", filtered: "", retrying: "warn", dead: "bad", unknown: "" };
const FORMS = ["auto", "text", "json", "hex", "base64", "protobuf"];
const DEAD = "%DLQ%";

// name: topic and message id, with a slash in between.
export function message(view, name) {
  const slash = name.indexOf("/");
  const [topic, id] = [name.slice(0, slash), name.slice(slash + 1)];
  const path = `/v1/topics/${part(topic)}/messages/${part(id)}`;
  const group = topic.startsWith(DEAD) ? topic.slice(DEAD.length) : null;
  view.panel("Message", async () => {
    const found = await get(path);
    return facts([["dead letter of", group && link("groups", group)], ["first sent to", found.origin && link("topics", found.origin)], ["topic", link("topics", found.topic)], ["message id", found.message_id], ["place", `${found.broker}:${found.queue}:${found.offset}`], ["stored", moment(found.stored)], ["sent", moment(found.born)], ["from", found.born_host], ["tag", found.tag], ["keys", (found.keys || []).join(" ")], ["message group", found.message_group], ["retries", found.reconsumed]]);
  }, { every: 0 });
  const target = make("select", { "aria-label": "receiver" }, make("option", { value: "" }, "every group"));
  view.panel("Where it went", async () => {
    if (group) return [note(`It failed in all deliveries to ${group}, and waits there until it is resent.`), make("p", {}, link("groups", group, `dead letters of ${group}`))];
    const { groups } = await get(`${path}/groups`);
    target.replaceChildren(target.firstChild, ...groups.map((delivery) => make("option", { value: delivery.group }, delivery.group)));
    return table("Consumer groups of the message", [
      { name: "group", value: (delivery) => delivery.group, cell: (delivery) => link("groups", delivery.group) },
      { name: "state", value: (delivery) => delivery.state, cell: (delivery) => badge(delivery.state, STATES[delivery.state]) },
      { name: "retries", number: true, value: (delivery) => delivery.retries },
    ], groups, "no group consumes the topic");
  }, { every: 0 });
  bodyPanel(view, path);
  view.panel("Properties", async () => {
    const { properties } = await get(path);
    return properties ? facts(Object.entries(properties)) : note("properties are not shown to this role (setting admin.contents)");
  }, { wide: true, every: 0 });
  view.panel("Trace", () => trace(path), { wide: true, every: 0, note: "who sent and consumed it, as their clients recorded" });
  const resend = group ? deadLetterAction(group, id) : resendAction(topic, path, target);
  if (!resend || (topic.startsWith("%") && !group)) return;
  view.actions.append(...(group ? [] : [make("label", {}, "to ", target)]), resend);
}

function bodyPanel(view, path) {
  const type = make("input", { "aria-label": "protobuf message type", placeholder: "shop.Order", size: 14, hidden: true });
  const form = make("select", { "aria-label": "form of the body" }, FORMS.map((kind) => make("option", {}, kind)));
  const refresh = view.panel("Body", async () => {
    if (form.value === "protobuf" && !type.value) return note("enter the full name of the message type; setting admin.descriptors names the descriptor sets");
    let { body } = await get(path, { body: form.value, message_type: form.value === "protobuf" ? type.value : null });
    if (!body) return note("bodies are not shown to this role (setting admin.contents)");
    const { format } = body;
    // JSON is shown from the text itself: numbers of JavaScript have 53 bits.
    if (format === "json") body = (await get(path, { body: "text" })).body;
    const text = format === "json" ? indented(body.content) : format === "protobuf" ? JSON.stringify(body.content, null, 2) : body.content;
    return [make("pre", { tabindex: "0", "aria-label": "Body" }, text), note(`${format}, ${body.bytes.toLocaleString()} bytes${body.truncated ? ", only the beginning is shown" : ""}`)];
  }, { wide: true, every: 0 });
  form.addEventListener("change", () => {
    type.hidden = form.value !== "protobuf";
    refresh();
  });
  type.addEventListener("change", refresh);
  view.actions.append(make("label", {}, "body as ", form), type);
}

async function trace(path) {
  const { message_id: id } = await get(path);
  const found = await get(`/v1/message-traces/${part(id)}`).catch((error) => {
    if (error.status === 404) return { sends: [], consumptions: [] };
    throw error;
  });
  const rows = [
    ...found.sends.map((sent) => ({ ...sent, event: "sent", attempt: null })),
    ...found.consumptions.map((consumed) => ({ ...consumed, event: "consumed" })),
  ];
  if (!rows.length) return note("no client recorded a trace: gRPC clients need grpc.message_trace, remoting clients enableMsgTrace");
  return table("Trace", [
    { name: "time", value: (row) => row.time, cell: (row) => moment(row.time) },
    { name: "event", value: (row) => row.event },
    { name: "group", value: (row) => row.group, cell: (row) => (row.event === "consumed" ? link("groups", row.group) : row.group) },
    { name: "written by", value: (row) => row.client_host },
    { name: "attempt", number: true, value: (row) => row.attempt },
    { name: "took", number: true, value: (row) => row.milliseconds, cell: (row) => millis(row.milliseconds) },
    { name: "result", value: (row) => row.success, cell: (row) => (row.success === null ? badge("open") : badge(row.success ? "success" : "failure", row.success ? "good" : "bad")) },
  ], rows);
}

function resendAction(topic, path, target) {
  const retry = retryChoice();
  return action("Resend", {
    danger: false,
    question: () => `Send a copy to ${target.value ? `group ${target.value}` : topic}?`,
    details: () => (target.value ? ["Only this group receives it.", retry.label] : ["Every group of the topic receives it."]),
    act: async () => `sent to ${(await write("POST", `${path}/resend`, target.value ? { to: retry.select.value, group: target.value } : {})).topic}`,
  });
}

function deadLetterAction(group, id) {
  const retry = retryChoice();
  return action("Resend", {
    danger: false,
    question: () => `Send the dead letter to ${group} again?`,
    details: () => ["It stays in the dead letter queue.", retry.label],
    act: async () => {
      const [result] = (await write("POST", `/v1/consumer-groups/${part(group)}/dead-letters/resend`, { message_ids: [id], to: retry.select.value })).items;
      if (!result.sent) throw new Error(result.text);
      return `sent to ${result.topic}`;
    },
  });
}
