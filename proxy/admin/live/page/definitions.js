// Definitions of topics and consumer groups: shown to all, and created, changed and deleted by writers.

import { canWrite, get, part, write } from "./api.js";
import { confirm, action, report } from "./dialog.js";
import { facts, make, note } from "./dom.js";

const TYPES = ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"];
const field = (label, input) => make("label", {}, `${label} `, input);
const name = () => make("input", { name: "name", required: true, maxlength: 255, size: 24 });

// kind: the first part of its page's address; path: of the API; order: reads the body of the request from the form.
function creation(view, { title, kind, path, fields, order }) {
  if (!canWrite()) return;
  const create = async (event) => {
    event.preventDefault();
    const body = order(event.target.elements);
    if (!(await confirm(`${title} ${body.name}?`, "Create", false, "It is created at every broker."))) return;
    try {
      await write("POST", path, body);
      location.hash = `#/${kind}/${part(body.name)}`;
      report(`${body.name} created`);
    } catch (error) {
      report(error.message, "bad");
    }
  };
  view.panel(title, () => make("form", { class: "row", onsubmit: create }, fields(), make("button", {}, "Create")), { wide: true, every: 0 });
}

export function topicCreation(view) {
  creation(view, {
    title: "Create topic",
    kind: "topics",
    path: "/v1/topics",
    fields: () => [
      field("name", name()),
      field("type of messages", make("select", { name: "kind" }, TYPES.map((type) => make("option", {}, type)))),
      field("queues at each broker", make("input", { name: "queues", type: "number", min: 1, value: 8, required: true })),
    ],
    order: (form) => ({ name: form.name.value, kind: form.kind.value, queues: Number(form.queues.value) }),
  });
}

export function groupCreation(view) {
  creation(view, {
    title: "Create consumer group",
    kind: "groups",
    path: "/v1/consumer-groups",
    fields: () => [
      field("name", name()),
      field("in order", make("input", { name: "fifo", type: "checkbox" })),
      field("redeliveries", make("input", { name: "retries", type: "number", min: 0, value: 16, required: true })),
    ],
    order: (form) => ({ name: form.name.value, fifo: form.fifo.checked, retries: Number(form.retries.value) }),
  });
}

const PERMISSIONS = ["RW", "R", "W", "none"];
const choice = (words) => (value) => make("select", {}, words.map((word) => make("option", { selected: word === value }, word)));
const number = (min) => (value) => make("input", { type: "number", min, value, required: true });
const tick = (value) => make("input", { type: "checkbox", checked: value });
const TOPIC_FIELDS = { kind: ["type of messages", choice(TYPES)], queues: ["queues at each broker", number(1)], permission: ["permission", choice(PERMISSIONS)] };
const GROUP_FIELDS = { fifo: ["in order", tick], retries: ["redeliveries", number(0)], enabled: ["may consume", tick] };
const entered = (input) => (input.type === "checkbox" ? input.checked : input.type === "number" ? Number(input.value) : input.value);
const word = (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : value);

// A definition as facts, and for writers as a form. load: returns it; fields: label and input of each field.
function definition(view, { thing, path, load, fields }) {
  let changed = null; // the answer to the last change: caches may have the former definition for some seconds
  const refresh = view.panel("Definition", async () => {
    const present = changed || await load();
    const missing = present.missing.length ? note(`missing at ${present.missing.join(", ")}; creating it again adds it there`, "warn") : null;
    const entries = Object.entries(fields);
    if (!canWrite()) return [facts(entries.map(([key, [label]]) => [label, word(present[key])])), missing];
    const inputs = Object.fromEntries(entries.map(([key, [, input]]) => [key, input(present[key])]));
    const submit = async (event) => {
      event.preventDefault();
      const keys = Object.keys(fields).filter((key) => entered(inputs[key]) !== present[key]);
      const words = keys.map((key) => `${fields[key][0]}: ${word(present[key])} → ${word(entered(inputs[key]))}`);
      if (!keys.length) report("nothing is changed", "warn");
      else if (await confirm(`Change ${thing}?`, "Change", true, ...words)) await change(Object.fromEntries(keys.map((key) => [key, entered(inputs[key])])));
    };
    return [make("form", { class: "row", onsubmit: submit }, entries.map(([key, [label]]) => field(label, inputs[key])), make("button", {}, "Change")), missing];
  }, { every: 0 });

  async function change(body) {
    try {
      changed = await write("PATCH", path, body);
      report(`${thing} changed`);
      refresh();
    } catch (error) {
      // A change that hides messages, or changes their type, is repeated once it is confirmed.
      if (error.status !== 409 || body.confirm || !error.message.includes("`confirm`")) report(error.message, "bad");
      else if (await confirm(`Change ${thing} nevertheless?`, "Change", true, error.message.split(": `confirm`")[0])) await change({ ...body, confirm: true });
    }
  }
}

export function topicDefinition(view, name, path) {
  const load = async () => {
    const { kind, brokers, missing } = await get(path);
    return { kind, queues: Math.max(...brokers.map((broker) => broker.write_queues)), permission: brokers[0].permission, missing };
  };
  definition(view, { thing: `topic ${name}`, path, load, fields: TOPIC_FIELDS });
}

export function groupDefinition(view, name, path) {
  definition(view, { thing: `consumer group ${name}`, path, load: () => get(`${path}/definition`), fields: GROUP_FIELDS });
}

// The button that deletes the thing of a page, and leads to the list of its kind. It is hidden until the thing is known.
export function deletion(view, { thing, kind, path, warning }) {
  const button = action("Delete", {
    question: () => `Delete ${thing}?`,
    details: () => [warning],
    act: async () => {
      await write("DELETE", path);
      location.hash = `#/${kind}`;
      return `${thing} deleted`;
    },
  });
  if (!button) return null;
  button.hidden = true;
  view.actions.append(button);
  return button;
}

// Load what a panel shows of a thing, and show the button that deletes it unless there is no such thing.
export async function shownIfKnown(button, load) {
  let known = true;
  try {
    return await load();
  } catch (error) {
    known = error.status !== 404;
    throw error;
  } finally {
    if (button) button.hidden = !known;
  }
}
