// The dead letters of a group: inspect, resend, purge.

import { canWrite, get, write } from "./api.js";
import { action, retryChoice } from "./dialog.js";
import { link, make, note } from "./dom.js";
import { count, moment } from "./format.js";
import { table } from "./table.js";

const LIMIT = 100;

export function deadLetters(view, name, path) {
  const chosen = new Set();
  const all = make("input", { type: "checkbox", onchange: () => choose(all.checked) });
  const every = make("label", {}, all, " all shown");
  let shown = [];
  let refresh = () => {};

  function choose(ticked) {
    chosen.clear();
    if (ticked) shown.forEach((letter) => chosen.add(letter.message_id));
    refresh();
  }

  function unchoose(ids) {
    ids.forEach((id) => chosen.delete(id));
    all.checked = false;
  }

  const columns = [
    { name: "message", value: (letter) => letter.message_id, cell: (letter) => link("messages", `%DLQ%${name}/${letter.message_id}`, letter.message_id) },
    { name: "topic", value: (letter) => letter.topic, cell: (letter) => link("topics", letter.topic) },
    { name: "tag", value: (letter) => letter.tag },
    { name: "died", value: (letter) => letter.stored, cell: (letter) => moment(letter.stored) },
    { name: "sent", value: (letter) => letter.born, cell: (letter) => moment(letter.born) },
    { name: "retries", number: true, value: (letter) => letter.reconsumed },
    { name: "bytes", number: true, value: (letter) => letter.bytes },
    { name: "place", value: (letter) => `${letter.broker}:${letter.queue}:${letter.offset}` },
  ];
  const choice = {
    name: "", cell: (letter) => {
      const box = make("input", { type: "checkbox", "aria-label": `choose ${letter.message_id}`, checked: chosen.has(letter.message_id) });
      box.addEventListener("change", () => { box.checked ? chosen.add(letter.message_id) : unchoose([letter.message_id]); });
      return box;
    },
  };

  refresh = view.panel("Dead letters", async () => {
    shown = (await get(`${path}/dead-letters`, { limit: LIMIT })).items;
    if (!shown.length) return note("none");
    const ids = () => [...new Set(shown.map((letter) => letter.message_id))].filter((id) => chosen.has(id));
    const retry = retryChoice();
    const resend = action("Resend chosen", {
      danger: false,
      question: () => `Send ${count(ids().length, "dead letter")} to ${name} again?`,
      details: () => ["They stay in the dead letter queue.", retry.label],
      act: async () => {
        if (!ids().length) throw new Error("no dead letter is chosen");
        const { items } = await write("POST", `${path}/dead-letters/resend`, { message_ids: ids(), to: retry.select.value });
        const failed = items.filter((item) => !item.sent);
        unchoose(items.filter((item) => item.sent).map((item) => item.message_id));
        if (failed.length) throw new Error(`${items.length - failed.length} sent, ${failed.length} not: ${failed[0].text}`);
        return `${count(items.length, "message")} sent to ${items[0].topic}`;
      },
      done: refresh,
    });
    const purge = action("Purge all", {
      question: () => `Delete all dead letters of ${name}?`,
      details: () => ["All of them are deleted at every broker, also those that are not shown. This cannot be undone."],
      act: async () => {
        const { brokers } = await write("DELETE", `${path}/dead-letters`);
        unchoose([...chosen]);
        return `deleted at ${brokers.join(", ")}`;
      },
      done: refresh,
    });
    return [make("p", { class: "row" }, canWrite() ? every : null, resend, purge), table("Dead letters", canWrite() ? [choice, ...columns] : columns, shown)];
  }, { wide: true, every: 0, note: `the newest ${LIMIT}` });
}
