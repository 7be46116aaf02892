// The dead letters of a group: inspect, resend, purge.

import { canWrite, get, write } from "./api.js";
import { action, report, retryChoice } from "./dialog.js";
import { link, make, note } from "./dom.js";
import { count, moment } from "./format.js";
import { table } from "./table.js";

const LIMIT = 100;

export function deadLetters(view, name, path) {
  const chosen = new Set();
  const all = make("input", { type: "checkbox", onchange: () => choose(all.checked) });
  const every = make("label", {}, all, " all shown");
  let shown = [];
  // The cursors of the pages up to the one that is shown.
  const trail = [null];
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

  const turn = (words, next) => make("button", { type: "button", disabled: next === null, onclick: () => {
    next();
    unchoose([...chosen]);
    refresh();
  } }, words);

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
    const page = await get(`${path}/dead-letters`, { limit: LIMIT, cursor: trail.at(-1) });
    shown = page.items;
    if (!shown.length && trail.length === 1) return note("none");
    const turns = [
      turn("Newer", trail.length > 1 ? () => trail.pop() : null),
      turn("Older", page.next === null ? null : () => trail.push(page.next)),
    ];
    const ids = () => [...new Set(shown.map((letter) => letter.message_id))].filter((id) => chosen.has(id));
    const retry = retryChoice();
    const retryAll = retryChoice();
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
    const resendAll = action("Resend all", {
      danger: false,
      question: () => `Send all dead letters of ${name} again?`,
      details: () => ["Those that are not shown are sent too. They stay in the dead letter queue.", retryAll.label],
      act: () => sendAll(view, path, retryAll.select.value),
      done: refresh,
    });
    const purge = action("Purge all", {
      question: () => `Delete all dead letters of ${name}?`,
      details: () => ["All of them are deleted at every broker, also those that are not shown. This cannot be undone."],
      act: async () => {
        const { brokers } = await write("DELETE", `${path}/dead-letters`);
        unchoose([...chosen]);
        trail.splice(1);
        return `deleted at ${brokers.join(", ")}`;
      },
      done: refresh,
    });
    return [make("p", { class: "row" }, canWrite() ? every : null, resend, resendAll, purge, ...turns), table("Dead letters", canWrite() ? [choice, ...columns] : columns, shown)];
  }, { wide: true, every: 0, note: `the newest first, ${LIMIT} at a time` });
}

// Send all dead letters of a group again, page by page, and report after each. One that has died twice is sent once.
async function sendAll(view, path, to) {
  const seen = new Set();
  let sent = 0;
  let failed = 0;
  let reason = "";
  let cursor = null;
  try {
    do {
      const page = await get(`${path}/dead-letters`, { limit: LIMIT, cursor });
      const ids = [...new Set(page.items.map((letter) => letter.message_id))].filter((id) => !seen.has(id));
      ids.forEach((id) => seen.add(id));
      const { items } = ids.length ? await write("POST", `${path}/dead-letters/resend`, { message_ids: ids, to }) : { items: [] };
      const refused = items.filter((item) => !item.sent);
      failed += refused.length;
      reason = refused[0]?.text || reason;
      sent += items.length - refused.length;
      // Such as a retry topic that is not known: the others would fail too.
      if (items.length && refused.length === items.length) break;
      report(`${count(sent, "dead letter")} sent so far`);
      cursor = page.next;
    } while (cursor !== null && !view.closed);
  } catch (error) {
    throw new Error(`${count(sent, "dead letter")} sent, then: ${error.message}`);
  }
  if (failed) throw new Error(`${count(sent, "dead letter")} sent, ${failed} not: ${reason}`);
  return `${count(sent, "dead letter")} sent${cursor === null ? "" : ", until the page was left"}`;
}
