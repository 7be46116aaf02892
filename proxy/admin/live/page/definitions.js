// Creation and deletion of topics and consumer groups, for writers.

import { canWrite, part, write } from "./api.js";
import { confirm, action, report } from "./dialog.js";
import { make } from "./dom.js";

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
