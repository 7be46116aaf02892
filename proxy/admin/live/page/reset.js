// The offset reset of a group: a dry run first.

import { canWrite, get, write } from "./api.js";
import { action, report } from "./dialog.js";
import { make, note } from "./dom.js";
import { table } from "./table.js";

const ENDS = { latest: "the end", earliest: "the first message" };

// The body of a reset. Throws if there is no time.
function chosen(topic, to, time) {
  if (to !== "time") return { topic, to };
  if (!time) throw new Error("enter a time");
  return { topic, time: new Date(time).toISOString() };
}

const target = (order) => ENDS[order.to] || `the first message since ${new Date(order.time).toLocaleString()}`;

export function resetForm(view, name, path) {
  if (!canWrite()) return;
  view.panel("Reset offsets", async () => {
    const [{ queues }, group] = await Promise.all([get(`${path}/lag`), get(path)]);
    const topics = [...new Set(queues.map((queue) => queue.topic).filter((topic) => !topic.startsWith("%")))];
    if (!topics.length) return note("it has consumed no topic yet");
    const topic = make("select", { "aria-label": "topic" }, topics.map((text) => make("option", {}, text)));
    const to = make("select", { "aria-label": "to" }, Object.entries({ ...ENDS, time: "a time" }).map(([value, words]) => make("option", { value }, words)));
    const time = make("input", { type: "datetime-local", "aria-label": "time", step: "1", hidden: true });
    const result = make("div");
    // What is shown is what the button does: another choice needs another dry run.
    const clear = () => {
      asked += 1;
      result.replaceChildren();
    };
    let asked = 0; // dry runs and changes so far: a late answer to an earlier one is dropped
    for (const choice of [topic, to, time]) choice.addEventListener("input", clear);
    to.addEventListener("input", () => { time.hidden = to.value !== "time"; });

    const preview = async (event) => {
      event.preventDefault();
      clear();
      const mine = asked;
      try {
        const order = chosen(topic.value, to.value, time.value);
        const plan = await write("POST", `${path}/reset-offset`, { ...order, dry_run: true });
        if (mine === asked) result.replaceChildren(...planned(order, plan));
      } catch (error) {
        report(error.message, "bad");
      }
    };
    const planned = (order, plan) => [
      table("Offsets after the reset", [
        { name: "queue", value: (queue) => `${queue.broker}:${queue.queue}` },
        { name: "from", number: true, value: (queue) => queue.former },
        { name: "to", number: true, value: (queue) => queue.offset },
        { name: "change", number: true, value: (queue) => queue.offset - (queue.former || 0) },
      ], plan.queues),
      group.members.length ? note(`${group.members.length} members are connected; they continue at the new offsets.`, "warn") : null,
      action("Reset", {
        question: () => `Move ${name} in ${order.topic} to ${target(order)}?`,
        details: () => ["Skipped messages are not delivered; repeated ones are delivered again."],
        act: async () => `${(await write("POST", `${path}/reset-offset`, { ...order, dry_run: false })).queues.length} queues reset`,
        done: clear,
      }),
    ].filter(Boolean);
    return [make("form", { class: "row", onsubmit: preview }, make("label", {}, "topic ", topic), make("label", {}, "to ", to), time, make("button", {}, "Dry run")), result];
  }, { every: 0 });
}
