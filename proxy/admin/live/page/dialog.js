// A question before a write, and the report of its result.

import { make, $ } from "./dom.js";
import { canWrite } from "./api.js";

// Return whether the reader confirms. details: elements or text; danger: whether the action takes something away.
export function confirm(question, action, danger, ...details) {
  return new Promise((resolve) => {
    const dialog = make("dialog", { "aria-label": question },
      make("form", { method: "dialog" },
        make("h2", {}, question), ...details.map((detail) => (detail instanceof Node ? detail : make("p", {}, detail))),
        make("p", { class: "row" }, make("button", { value: "no", autofocus: true }, "Cancel"), make("button", { value: "yes", class: danger ? "danger" : "" }, action))));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function report(words, kind = "good") {
  const element = $("report");
  element.className = `report ${kind}`;
  element.textContent = words;
  element.hidden = false;
  clearTimeout(report.timer);
  report.timer = setTimeout(() => { element.hidden = true; }, 15000);
}

// A choice of the retry topic of a group, for the details of an action.
export function retryChoice() {
  const select = make("select", { "aria-label": "retry topic" },
    make("option", { value: "auto" }, "as its members consume"), make("option", { value: "retry" }, "retry: remoting push consumers"),
    make("option", { value: "pop_retry" }, "pop_retry: gRPC and other popping consumers"));
  return { select, label: make("label", {}, "retry topic ", select) };
}

// A button of writers: it asks, acts, and reports. Readers have none.
export function action(words, { question, details = () => [], act, done, danger = true }) {
  if (!canWrite()) return null;
  return make("button", {
    type: "button",
    class: danger ? "danger" : "",
    onclick: async () => {
      if (!(await confirm(question(), words, danger, ...details()))) return;
      try {
        report((await act()) || "done");
      } catch (error) {
        report(error.message, "bad");
      }
      if (done) done();
    },
  }, words);
}
