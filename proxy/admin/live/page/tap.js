// Live requests, by server-sent events; read with fetch, so that errors are problem details.

import { ask } from "./api.js";
import { make } from "./dom.js";
import { clock, millis } from "./format.js";

const TAIL = 300; // requests in the list

// A form and a list. fixed: conditions that every request meets.
export class Tap {
  constructor(form, button, list, fixed = {}) {
    Object.assign(this, { form, button, list, fixed, running: null });
    form.addEventListener("submit", (event) => { event.preventDefault(); this.toggle(); });
  }

  stop() { this.running?.abort(); }

  async toggle() {
    if (this.running) { this.stop(); return; }
    this.running = new AbortController();
    this.button.textContent = "Stop";
    const query = new URLSearchParams([...Object.entries(this.fixed), ...new FormData(this.form)].filter(([, value]) => value));
    try {
      const reader = (await ask(`/v1/tap?${query}`, { signal: this.running.signal })).body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        this.list.prepend(...events.map(parse).filter(Boolean).reverse());
        while (this.list.childElementCount > TAIL) this.list.lastElementChild.remove();
      }
    } catch (error) {
      if (error.name !== "AbortError") this.list.prepend(make("li", { class: "bad" }, error.message));
    } finally {
      this.running = null;
      this.button.textContent = "Watch";
    }
  }
}

function parse(event) {
  const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s)));
  if (!fields.data) return null;
  const data = JSON.parse(fields.data);
  if (fields.event === "dropped") return make("li", { class: "warn" }, `${data.requests} requests were too many to be shown`);
  if (fields.event !== "request") return make("li", { class: "warn" }, `worker ${data.worker} ${fields.event === "missing" ? "does not answer" : "answers again"}`);
  const place = data.broker && `${data.broker}${data.queue === null ? "" : `:${data.queue}`}`;
  const words = [data.protocol, data.code, data.topic, data.group, data.client_id || data.address, place, data.messages ? `${data.messages} messages` : null, data.ok ? null : `answer ${data.response}`, millis(data.milliseconds)];
  return make("li", { class: data.ok ? "" : "bad" }, make("time", {}, clock(data.time)), words.filter(Boolean).join(" · "));
}

// A tap of its own, for a panel of a page.
export function tapPanel(fixed) {
  const button = make("button", { type: "submit" }, "Watch");
  const list = make("ol", { class: "log", tabindex: "0", "aria-label": "Live requests" });
  const form = make("form", { class: "row" }, button);
  return { tap: new Tap(form, button, list, fixed), elements: [form, list] };
}
