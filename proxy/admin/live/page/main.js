// The page's frame: addresses, login, search, themes, and the loops that read figures.

import { canWrite, logIn, logOut, onSession, readSession, session } from "./api.js";
import { broker, brokerList } from "./broker.js";
import { client, clientList } from "./client.js";
import { connection, connectionList } from "./connection.js";
import { step } from "./crane.js";
import { report } from "./dialog.js";
import { $, make } from "./dom.js";
import { group } from "./group.js";
import { groupList } from "./groups.js";
import { message } from "./message.js";
import { look, lookAround, state } from "./overview.js";
import { replica, replicaList } from "./replica.js";
import { search } from "./search.js";
import { Tap } from "./tap.js";
import { topic, topicList } from "./topic.js";
import { View } from "./view.js";

// Pages by the first part of the address: of one thing, and of all of its kind.
const PAGES = {
  topics: ["Topic", topic, topicList], groups: ["Consumer group", group, groupList], clients: ["Client", client, clientList],
  connections: ["Connection", connection, connectionList], brokers: ["Broker", broker, brokerList], replicas: ["Replica", replica, replicaList],
  messages: ["Message", message, null], search: ["Search for", search, null],
};
let view = null;

// #/groups/billing, or with filters #/topics/orders?tag=paid
function open() {
  const [address, query = ""] = location.hash.split("?", 2);
  const [, kind = "", name = ""] = address.split("/", 3);
  const page = PAGES[kind];
  view?.close();
  view = null;
  const overview = !page || (!name && !page[2]);
  $("overview").hidden = !overview;
  $("detail").hidden = overview;
  document.querySelectorAll("nav a").forEach((anchor) => {
    if (anchor.getAttribute("href") === `#/${overview ? "" : kind}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  });
  if (overview) { $("detail").replaceChildren(); return; }
  const [title, one, all] = page;
  const decoded = decode(name);
  view = name ? new View(title, decoded) : new View("", `${title}s`);
  view.filters = new URLSearchParams(query);
  if (name) one(view, decoded);
  else all(view);
  $("detail").replaceChildren(view.element);
  view.heading.focus();
  scrollTo(0, 0);
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Login.

function showSession() {
  const open_ = session.role !== "none";
  $("login").hidden = open_ && !$("login").dataset.wanted;
  $("who").textContent = open_ ? `${session.name} (${session.role})` : "";
  $("log-in").hidden = canWrite();
  $("log-out").hidden = !session.session;
  // Actions depend on the role.
  open();
}

async function submitLogin(event) {
  event.preventDefault();
  try {
    await logIn($("token").value, $("user").value);
    delete $("login").dataset.wanted;
    $("token").value = "";
    showSession();
    lookAgain();
  } catch (error) {
    report(error.message, "bad");
  }
}

// Loops.

async function lookAgain() {
  try {
    if (session.role === "none") throw new Error("a token is needed");
    await look();
  } catch (error) {
    state("bad", error.message === "a token is needed" || error.status === 401 ? "a token is needed" : "out of reach");
  }
}
async function lookLoop() {
  await lookAgain();
  setTimeout(lookLoop, document.hidden ? 5000 : 1000);
}
async function aroundLoop() {
  try {
    if (session.role !== "none" && !$("overview").hidden) await lookAround();
  } catch { /* each table shows its error */ }
  setTimeout(aroundLoop, document.hidden ? 60000 : 5000);
}

function theme(name) { document.documentElement.dataset.theme = name; }

function start() {
  theme(localStorage.getItem("gantry-theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("gantry-theme", next);
    theme(next);
  });
  $("login").addEventListener("submit", submitLogin);
  $("log-in").addEventListener("click", () => { $("login").dataset.wanted = "yes"; $("login").hidden = false; $("token").focus(); });
  $("log-out").addEventListener("click", () => logOut().catch((error) => report(error.message, "bad")));
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("q").value.trim();
    if (text) location.hash = `#/search/${encodeURIComponent(text)}`;
  });
  $("range").addEventListener("change", () => lookAround().catch(() => {}));
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, select, textarea")) { event.preventDefault(); $("q").focus(); }
  });
  addEventListener("hashchange", open);
  new Tap($("tail"), $("tap"), $("requests"));
  onSession(showSession);
}

start();
readSession().catch(() => {}).finally(() => { showSession(); lookLoop(); aroundLoop(); step(); });
