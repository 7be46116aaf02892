// Requests to the API, with this session's token for writes.

export const TIMEOUT = 10000; // milliseconds for a response, so that a replica that hangs is noticed

export const PAGE = 1000; // items of a page of a list

export const session = { name: "", role: "none", session: false, csrf: null };
const listeners = [];

// Call a function whenever the caller or its role has changed.
export const onSession = (listener) => listeners.push(listener);
export const canWrite = () => session.role === "write";

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function refusal(answer) {
  try {
    const problem = await answer.json();
    const faults = (problem.faults || []).map((fault) => `${fault.where}: ${fault.detail}`).join("; ");
    return new Refused(answer.status, faults ? `${problem.detail} (${faults})` : problem.detail);
  } catch {
    return new Refused(answer.status, `the answer was ${answer.status}`);
  }
}

export async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (session.csrf && options.method && options.method !== "GET") headers["x-csrf-token"] = session.csrf;
  const answer = await fetch(path, { cache: "no-store", ...options, headers });
  if (answer.ok) return answer;
  const error = await refusal(answer);
  if (answer.status === 401 && session.role !== "none" && path !== "/v1/session") await readSession();
  throw error;
}

// query: values by parameter; a list repeats the parameter.
export async function get(path, query = {}) {
  const pairs = Object.entries(query).flatMap(([name, value]) => [value].flat().map((item) => [name, item])).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(pairs).toString();
  return (await ask(text ? `${path}?${text}` : path, { signal: AbortSignal.timeout(3 * TIMEOUT) })).json();
}

// The items of all pages of a list, at most `most`; `total` of them exist.
export async function getAll(path, query = {}, most = 10000) {
  const found = await get(path, { ...query, limit: PAGE });
  while (found.next && found.items.length < most) {
    const page = await get(path, { ...query, limit: PAGE, cursor: found.next });
    found.items.push(...page.items);
    found.next = page.next;
  }
  return found;
}

export async function write(method, path, body) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  const answer = await ask(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.status === 204 ? null : answer.json();
}

// Part of a path: names may hold any character.
export const part = encodeURIComponent;

function change(state) {
  const before = JSON.stringify(session);
  Object.assign(session, state);
  if (JSON.stringify(session) !== before) listeners.forEach((listener) => listener());
}

export async function readSession() {
  change(await get("/v1/session"));
}
export async function logIn(token, user) {
  change(await write("POST", "/v1/session", user ? { user, token } : { token }));
}
export async function logOut() {
  await write("DELETE", "/v1/session");
  change({ session: false, csrf: null });
  await readSession();
}
