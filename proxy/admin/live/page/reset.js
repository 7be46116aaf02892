// The offset reset of a group: a dry run first.

import { canWrite, get, write } from "./api.js";
import { action, report } from "./dialog.js";
import { make, note } from "./dom.js";
import { table } from "./table.js";

export function resetForm(view, name, path) {
  if (!canWrite()) return;
  view.panel("Reset offsets", async () => {
    const [{ queues }, group] = await Promise.all([get(`${path}/lag`), get(path)]);
    const topics = [...new Set(queues.map((queue) => queue.topic).filter((topic) => !topic.startsWith("%")))];
    if (!topics.length) return note("it has consumed no topic yet");
    const topic = make("select", { "aria-label": "topic" }, topics.map((text) => make("option", {}, text)));
    const to = make("select", { "aria-label": "to" }, [["latest", "after the last message"], ["earliest", "first message"], ["time", "a time"]].map(([value, words]) => make("option", { value }, words)));
    const time = make("input", { type: "datetime-local", "aria-label": "time", step: "1", hidden: true });
    const result = make("div");
    to.addEventListener("change", () => { time.hidden = to.value !== "time"; });

    const order = (dryRun) => ({ topic: topic.value, dry_run: dryRun, ...(to.value === "time" ? { time: new Date(time.value).toISOString() } : { to: to.value }) });
    const preview = async (event) => {
      event.preventDefault();
      try {
        result.replaceChildren(...planned(await write("POST", `${path}/reset-offset`, order(true))));
      } catch (error) {
        report(error.message, "bad");
      }
    };
    const planned = (plan) => [
      table("Offsets after the reset", [
        { name: "queue", value: (queue) => `${queue.broker}:${queue.queue}` },
        { name: "from", number: true, value: (queue) => queue.former },
        { name: "to", number: true, value: (queue) => queue.offset },
        { name: "change", number: true, value: (queue) => queue.offset - (queue.former || 0) },
      ], plan.queues),
      group.members.length ? note(`${group.members.length} members are connected; they continue at the new offsets.`, "warn") : null,
      action("Reset", {
        question: () => `Move ${name} in ${topic.value}?`,
        details: () => ["Skipped messages are not delivered; repeated ones are delivered again."],
        act: async () => `${(await write("POST", `${path}/reset-offset`, order(false))).queues.length} queues reset`,
        done: () => result.replaceChildren(),
      }),
    ].filter(Boolean);
    return [make("form", { class: "row", onsubmit: preview }, make("label", {}, "topic ", topic), make("label", {}, "to ", to), time, make("button", {}, "Dry run")), result];
  }, { every: 0 });
}
