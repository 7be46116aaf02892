// A page: a heading and panels, each of which loads its content and refreshes it.

import { make } from "./dom.js";

const RETRY = 5000; // milliseconds until a panel without refreshes that could not be loaded is loaded again
const FOCUSABLE = "a, button, input, select, [tabindex]";

export class View {
  constructor(kind, title) {
    this.closed = false;
    this.timers = new Set();
    this.heading = make("h2", { tabindex: "-1", class: "title" }, make("span", { class: "faint" }, kind ? `${kind} ` : ""), title);
    this.actions = make("p", { class: "row" });
    this.element = make("div", { class: "view" }, make("div", { class: "wide row" }, this.heading, this.actions));
  }

  // load: returns an element, or several. every: milliseconds until the next load; 0: on demand, and after a failure.
  panel(title, load, { every = 5000, wide = false, note = "" } = {}) {
    const body = make("div", { class: "body" }, make("p", { class: "faint" }, "loading…"));
    const section = make("section", { class: wide ? "wide" : "", "aria-label": title }, make("h3", {}, title, " ", make("small", {}, note)), body);
    this.element.append(section);
    let running = 0;
    const refresh = async () => {
      running += 1;
      const mine = running;
      let content;
      let retry = false;
      try {
        content = [await load()].flat().filter(Boolean);
      } catch (error) {
        retry = !every && mayPass(error);
        content = [make("p", { class: error.status === 404 ? "faint" : "bad" }, error.message)];
      }
      if (mine !== running || this.closed) return;
      replace(body, content);
      if (retry) this.after(RETRY, () => { if (mine === running) refresh(); });
    };
    const again = async () => {
      if (this.closed) return;
      if (!document.hidden && !isBusy(body)) await refresh();
      this.after(every, again);
    };
    refresh().then(() => { if (every) this.after(every, again); });
    return refresh;
  }

  after(milliseconds, act) {
    const timer = setTimeout(() => { this.timers.delete(timer); act(); }, milliseconds);
    this.timers.add(timer);
  }

  close() {
    this.closed = true;
    this.timers.forEach(clearTimeout);
    this.onclose?.();
  }
}

// Whether a request may succeed later: the server did not answer, failed, or had too many of them.
const mayPass = (error) => !(error.status >= 400 && error.status < 500) || error.status === 429;

// Whether the reader is filling in a form of the panel, or has marked text.
function isBusy(body) {
  const selection = document.getSelection();
  return body.querySelector("input:focus, select:focus, input:checked") !== null || (!selection.isCollapsed && body.contains(selection.anchorNode));
}

// Replace the content; the focus, and the scrolling of tables, stay where they are.
function replace(body, content) {
  const index = [...body.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  const offsets = [...body.querySelectorAll(".scroll")].map((place) => place.scrollTop);
  body.replaceChildren(...content);
  [...body.querySelectorAll(".scroll")].forEach((place, number) => { place.scrollTop = offsets[number] || 0; });
  if (index >= 0) body.querySelectorAll(FOCUSABLE)[index]?.focus({ preventScroll: true });
}
