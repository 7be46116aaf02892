// The browser of a topic's messages.

import { get, part } from "./api.js";
import { link, make, note } from "./dom.js";
import { moment } from "./format.js";
import { table } from "./table.js";

export function messageBrowser(view, topic) {
  const path = `/v1/topics/${part(topic)}/messages`;
  const field = (label, name, attributes = {}) => make("label", {}, `${label} `, make("input", { name, size: 12, value: initial(view.filters, name), ...attributes }));
  const form = make("form", { class: "row" }, field("key", "key"), field("tag", "tag"), field("SQL", "sql", { size: 24 }), field("broker", "broker"), field("queue", "queue", { type: "number", min: 0 }), field("offset", "offset", { type: "number", min: 0 }), field("from", "from", { type: "datetime-local", step: 1 }), field("to", "to", { type: "datetime-local", step: 1 }), make("button", {}, "Show"));
  const place = make("div");
  let next = null;
  let calls = 0;

  const query = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value).map(([name, value]) => [name, TIMES.includes(name) ? new Date(value).toISOString() : value]));
  // A late answer of an earlier call is dropped: it would stand under the filters of a later one.
  const show = async (cursor = null) => {
    calls += 1;
    const mine = calls;
    try {
      const page = await get(path, { ...query(), limit: 50, cursor });
      if (mine !== calls) return;
      next = page.next;
      place.replaceChildren(list(topic, page), make("button", { type: "button", disabled: next === null, onclick: () => show(next) }, "Next page"));
    } catch (error) {
      if (mine === calls) place.replaceChildren(note(error.message, "bad"));
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    // The address can be sent to others, or kept.
    const filters = new URLSearchParams(query()).toString();
    history.replaceState(null, "", `#/topics/${part(topic)}${filters && `?${filters}`}`);
    show();
  });
  view.panel("Messages", async () => { await show(); return [form, place]; }, { wide: true, every: 0, note: "by key, tag, SQL, queue, offset or time" });
}

const TIMES = ["from", "to"];

// The value of a field: of the address, where times are those of UTC. Fields of times have the reader's time.
function initial(filters, name) {
  const value = filters.get(name);
  if (!value || !TIMES.includes(name)) return value;
  const time = new Date(value);
  if (Number.isNaN(time.getTime())) return null;
  return new Date(time.getTime() - 60000 * time.getTimezoneOffset()).toISOString().slice(0, 19);
}

// Copies of a message have its id; the id of its place is of one message. Dead letters are resent by the former.
const idOf = (topic, item) => (topic.startsWith("%DLQ%") ? item.message_id : item.offset_message_id);

function list(topic, { items, next }) {
  return table(`Messages of ${topic}`, [
    { name: "message", value: (item) => item.message_id, cell: (item) => link("messages", `${topic}/${idOf(topic, item)}`, item.message_id) },
    { name: "stored", value: (item) => item.stored, cell: (item) => moment(item.stored) },
    { name: "place", value: (item) => `${item.broker}:${item.queue}:${item.offset}` },
    { name: "tag", value: (item) => item.tag },
    { name: "keys", value: (item) => (item.keys || []).join(" ") },
    { name: "group", value: (item) => item.message_group },
    { name: "bytes", number: true, value: (item) => item.bytes },
    { name: "body", value: (item) => item.preview },
  ], items, next === null ? "no message" : "none in the part searched so far");
}
