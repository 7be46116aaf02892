// The browser of a topic's messages.

import { get, part } from "./api.js";
import { link, make, note } from "./dom.js";
import { moment } from "./format.js";
import { table } from "./table.js";

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
