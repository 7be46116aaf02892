// The live page: reads figures each second and draws them. No build step, no other origins.
"use strict";

const $ = (id) => document.getElementById(id);
const HISTORY = 180; // seconds in the charts
const MAX_GROUPS = 30; // rows of consumer groups
const TAIL = 300; // requests in the list
const TIMEOUT = 5000; // milliseconds for a response, so that a replica that hangs is noticed
const SVG = "http://www.w3.org/2000/svg";

let seconds = [];
let token = sessionStorage.getItem("gantry-token") || "";
let tapping = null;
let progress = new Map(); // consumer groups of the API, by name

// Formats.

const round = (value) => (value >= 100 ? Math.round(value) : Math.round(value * 10) / 10);
const UNITS = ["", "k", "M", "G", "T"];
function short(value) {
  if (value === null || value === undefined) return "–";
  let step = 0;
  while (value >= 10000 && step < UNITS.length - 1) { value /= 1000; step += 1; }
  return `${round(value).toLocaleString()}${UNITS[step]}`;
}
const millis = (value) => (value === null || value === undefined ? "–" : value >= 1000 ? `${round(value / 1000)} s` : `${round(value)} ms`);
const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
function span(count) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (count >= 2 * size) return `${Math.floor(count / size)} ${unit}`;
  return `${Math.floor(count)} s`;
}

// Elements. Names from clients are set as text, never as HTML.

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
function draw(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
const fill = (list, items) => list.replaceChildren(...items);
function row(cells) {
  return make("tr", {}, ...cells.map((cell) => (cell instanceof HTMLElement ? cell : make("td", {}, cell instanceof Node ? cell : String(cell)))));
}
const text = (value, kind = "") => make("td", { class: `text ${kind}` }, String(value));

// Requests.

async function ask(path, options = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", ...options });
  if (answer.status === 401 || answer.status === 403) {
    $("login").hidden = false;
    throw new Error("a token is needed");
  }
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  $("login").hidden = true;
  return answer;
}

async function look() {
  const since = seconds.length ? seconds[seconds.length - 1].at : 0;
  const query = new URLSearchParams({ since, topic: $("f-topic").value, group: $("f-group").value });
  try {
    show(await (await ask(`/v1/live?${query}`, { signal: AbortSignal.timeout(TIMEOUT) })).json());
  } catch (error) {
    state("bad", error.message === "a token is needed" ? error.message : "out of reach");
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}

// Tables that change slowly.
async function lookAround() {
  try {
    await Promise.all([lookAtClients(), lookAtGroups()]);
  } catch { /* the other loop says so */ }
  setTimeout(lookAround, document.hidden ? 60000 : 5000);
}

async function lookAtClients() {
  const { items } = await (await ask("/v1/clients?limit=50")).json();
  fill($("t-clients").tBodies[0], items.map((client) => row([
    text(client.client_id), text(client.protocols.join(", ")), text([client.language, client.version].filter(Boolean).join(" ") || "–"),
    text([...client.consumer_groups, ...client.producer_groups].join(", ") || "–"),
  ])));
}

async function lookAtGroups() {
  const { items } = await (await ask("/v1/consumer-groups?limit=1000")).json();
  progress = new Map(items.map((group) => [group.name, group]));
}

// Figures.

function state(kind, words) {
  const element = $("state");
  element.className = `state ${kind}`;
  if (element.textContent !== words) element.textContent = words;
}

function show(live) {
  if (seconds.length && live.seconds.length && live.seconds[0].at > seconds[seconds.length - 1].at + 1) seconds = [];
  seconds = seconds.concat(live.seconds).slice(-HISTORY);
  const reasons = live.reasons.join("; ");
  if (live.draining) state("warn", "draining");
  else if (!live.ready) state("bad", `not ready: ${reasons}`);
  else if (reasons) state("warn", reasons);
  else state("good", "ready");
  document.title = `Gantry · ${live.replica}`;
  $("replica").textContent = `${live.replica} · ${live.release} · ${live.listeners.join(", ")} · up ${span(live.uptime)}`;
  tiles(live);
  charts();
  tables(live);
  bars($("codes"), live.codes);
  bars($("negotiations"), live.negotiations);
  fill($("events"), live.events.map((event) => make("li", {}, make("time", {}, clock(event.at)),
    make("span", { class: event.kind === "error" ? "bad" : "" }, event.text + (event.first ? ` [${event.first}]` : "")))));
  load(live);
}

const both = (second, name) => second.remoting[name] + second.grpc[name];

function tiles(live) {
  const last = seconds.slice(-5);
  const mean = (name) => (last.length ? last.reduce((sum, second) => sum + both(second, name), 0) / last.length : 0);
  $("n-requests").textContent = `${short(mean("requests"))}/s`;
  $("n-sent").textContent = `${short(mean("sent"))}/s`;
  $("n-delivered").textContent = `${short(mean("delivered"))}/s`;
  const share = mean("requests") ? (100 * mean("failed")) / mean("requests") : 0;
  $("n-errors").textContent = `${round(share)} %`;
  $("n-errors").className = share >= 1 ? "bad" : "";
  const newest = [...last].reverse().find((second) => second.p50 !== null);
  $("n-p50").textContent = millis(newest && newest.p50);
  $("n-p99").textContent = millis(newest && newest.p99);
  $("n-connections").textContent = short(live.connections.remoting + live.connections.grpc);
  $("n-clients").textContent = short(live.clients);
}

function charts() {
  const stacked = seconds.map((second) => [second.remoting.requests, second.grpc.requests]);
  areas($("c-requests"), stacked, ["remoting", "grpc"], short);
  areas($("c-errors"), seconds.map((second) => [both(second, "failed")]), ["bad"], short);
  lines($("c-latency"), seconds.map((second) => [second.p50, second.p99]), ["p50", "p99"], millis);
}

function scale(svg, most, words) {
  const width = svg.clientWidth || 400, height = svg.clientHeight || 130;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const parts = [0.5, 1].flatMap((share) => {
    const y = height - share * (height - 16);
    return [draw("line", { class: "grid", x1: 0, x2: width, y1: y, y2: y }), draw("text", { x: 2, y: y - 3 }, words(share * most))];
  });
  fill(svg, parts);
  return { x: (index) => width - (seconds.length - 1 - index) * (width / (HISTORY - 1)), y: (value) => height - (value / most) * (height - 16) };
}

function areas(svg, rows, kinds, words) {
  const most = nice(Math.max(1, ...rows.map((values) => values.reduce((sum, value) => sum + value, 0))));
  const { x, y } = scale(svg, most, words);
  const base = rows.map(() => 0);
  kinds.forEach((kind, number) => {
    const lower = rows.map((_, index) => `${x(index)},${y(base[index])}`).reverse();
    rows.forEach((values, index) => { base[index] += values[number]; });
    const upper = rows.map((_, index) => `${x(index)},${y(base[index])}`);
    if (rows.length) svg.append(draw("polygon", { class: `area ${kind}`, points: [...upper, ...lower].join(" ") }));
  });
}

function lines(svg, rows, kinds, words) {
  const most = nice(Math.max(1, ...rows.flat().map((value) => value || 0)));
  const { x, y } = scale(svg, most, words);
  kinds.forEach((kind, number) => {
    let path = "", gap = true;
    rows.forEach((values, index) => {
      const value = values[number];
      if (value === null) { gap = true; return; }
      path += `${gap ? "M" : "L"}${x(index)} ${y(value)}`;
      gap = false;
    });
    if (path) svg.append(draw("path", { class: `trace ${kind}`, d: path }));
  });
}

// The next of 1, 2, 5 times a power of ten, so that the axis is stable.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function spark(trend) {
  const most = Math.max(1, ...trend);
  const svg = draw("svg", { viewBox: "0 0 90 18", "aria-hidden": "true" });
  const points = trend.map((value, index) => `${90 - (trend.length - 1 - index) * (90 / 59)},${17 - (value / most) * 16}`);
  svg.append(draw("polyline", { class: "trace spark", points: points.join(" ") }));
  return svg;
}

function tables(live) {
  fill($("t-topics").tBodies[0], live.topics.map((topic) => row([
    titled(topic.name), spark(topic.trend), short(topic.requests), short(topic.sent), short(topic.delivered), short(topic.bytes_in + topic.bytes_out),
    make("td", { class: topic.failed ? "bad" : "" }, short(topic.failed)),
  ])));
  fill($("t-groups").tBodies[0], consumerGroups(live).map(({ group, traffic }) => row([
    titled(group.name),
    text(group.state || "–", STATES[group.state] || ""),
    spark(traffic ? traffic.trend : []),
    short(traffic ? traffic.delivered : group.rate),
    make("td", { class: group.skewed ? "warn" : "", title: group.skewed ? "the subscriptions of members differ" : "" }, `${group.members}${group.skewed ? " ⚠" : ""}`),
    make("td", { class: group.lag > 1000 ? "warn" : "" }, short(group.lag)),
    group.lag_seconds === null ? "–" : span(group.lag_seconds),
    short(group.retry_backlog),
    make("td", { class: group.dead_letters ? "bad" : "" }, short(group.dead_letters)),
  ])));
  fill($("t-brokers").tBodies[0], live.brokers.map((broker) => row([
    broker.name, text(broker.healthy ? "reachable" : "out of reach", broker.healthy ? "good" : "bad"),
    text(broker.addresses.map((address) => `${address.id}: ${address.address} (${address.state})`).join(", ")),
    short(broker.addresses.reduce((sum, address) => sum + address.pending, 0)), millis(broker.average_milliseconds), millis(broker.longest_milliseconds),
  ])));
}

// Consumer groups with traffic, and those that need attention; these first.
const STATES = { stuck: "bad", lagging: "warn", offline: "", online: "good" };
const urgency = (group) => ["stuck", "lagging"].indexOf(group.state) + 1 || (group.dead_letters || (group.state === "offline" && group.lag) ? 3 : 4);
function consumerGroups(live) {
  const traffic = new Map(live.groups.map((group) => [group.name, group]));
  const wanted = $("f-group").value;
  return [...progress.values()]
    .filter((group) => group.name.includes(wanted) && (traffic.has(group.name) || urgency(group) < 4))
    .map((group) => ({ group, traffic: traffic.get(group.name) }))
    .sort((one, other) => urgency(one.group) - urgency(other.group) || other.group.lag - one.group.lag)
    .slice(0, MAX_GROUPS);
}

const titled = (name) => make("td", { title: name }, name);

function bars(list, counts) {
  const pairs = Object.entries(counts).filter(([, count]) => count).sort((a, b) => b[1] - a[1]).slice(0, 12);
  const most = Math.max(1, ...pairs.map(([, count]) => count));
  fill(list, pairs.map(([name, count]) => {
    const bar = make("span", { class: "bar" });
    bar.style.width = `${(100 * count) / most}%`;
    return make("li", {}, make("span", { class: "name", title: name }, name), make("span", {}, bar), make("span", {}, short(count)));
  }));
}

// The crane: its speed is that of messages, the colour of its load that of the protocol.

const trolley = { at: 0, speed: 0, loaded: true, failed: false, share: 0, boxes: [] };
function load(live) {
  const last = seconds[seconds.length - 1];
  if (!last) return;
  const messages = both(last, "sent") + both(last, "delivered");
  trolley.speed = messages ? Math.min(0.12 + Math.log10(1 + messages) / 4, 1.6) : 0;
  trolley.share = both(last, "requests") ? last.grpc.requests / both(last, "requests") : 0;
  trolley.failed = both(last, "failed") > 0 || !live.ready;
}
function step() {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (!still && trolley.speed) {
    const before = trolley.at;
    trolley.at = (trolley.at + trolley.speed / 60) % 2;
    if (before < 1 && trolley.at >= 1) drop();
  }
  const forth = trolley.at < 1;
  const place = forth ? trolley.at : 2 - trolley.at;
  $("trolley").setAttribute("transform", `translate(${36 + 74 * place} 0)`);
  const box = $("trolley").querySelector(".load");
  box.style.visibility = forth ? "visible" : "hidden";
  box.setAttribute("class", trolley.failed ? "load bad" : "load");
  requestAnimationFrame(step);
}
function drop() {
  trolley.boxes.push(Math.random() < trolley.share ? "grpc" : "remoting");
  if (trolley.boxes.length > 14) trolley.boxes = []; // the ship sails
  fill($("stack"), trolley.boxes.map((kind, index) => draw("rect", { class: kind, x: 78 + (index % 5) * 13, y: 37 - Math.floor(index / 5) * 7, width: 12, height: 6 })));
}

// Live requests, by server-sent events. An EventSource cannot send a token, so they are read with fetch.

async function tap(event) {
  event.preventDefault();
  if (tapping) { tapping.abort(); return; }
  tapping = new AbortController();
  $("tap").textContent = "Stop";
  const query = new URLSearchParams([...new FormData($("tail"))].filter(([, value]) => value));
  try {
    const reader = (await ask(`/v1/tap?${query}`, { signal: tapping.signal })).body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      tell(events);
    }
  } catch (error) {
    if (error.name !== "AbortError") tellLine("bad", error.message);
  } finally {
    tapping = null;
    $("tap").textContent = "Watch";
  }
}

function tell(events) {
  const lines = events.map(parse).filter(Boolean);
  const list = $("requests");
  list.prepend(...lines.reverse());
  while (list.childElementCount > TAIL) list.lastElementChild.remove();
}
function parse(event) {
  const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s)));
  if (!fields.data) return null;
  const data = JSON.parse(fields.data);
  if (fields.event === "dropped") return make("li", { class: "warn" }, `${data.requests} requests were too many to be shown`);
  if (fields.event !== "request") return make("li", { class: "warn" }, `worker ${data.worker} ${fields.event === "missing" ? "does not answer" : "answers again"}`);
  const words = [data.protocol, data.code, data.topic, data.group, data.client_id || data.address, data.broker && `${data.broker}${data.queue === null ? "" : `:${data.queue}`}`, data.messages ? `${data.messages} messages` : null, `${data.ok ? "" : "answer "}${data.ok ? "" : data.response}`, millis(data.milliseconds)];
  return make("li", { class: data.ok ? "" : "bad" }, make("time", {}, clock(data.time)), words.filter(Boolean).join(" · "));
}
function tellLine(kind, words) { $("requests").prepend(make("li", { class: kind }, words)); }

// Themes.

function theme(name) { document.documentElement.dataset.theme = name; }
theme(localStorage.getItem("gantry-theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
$("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("gantry-theme", next);
  theme(next);
});
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("gantry-token", token);
});
$("tail").addEventListener("submit", tap);
look();
lookAround();
step();
