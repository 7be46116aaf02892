// Numbers, times and sizes as text.

const UNITS = ["", "k", "M", "G", "T"];

export const round = (value) => (value >= 100 ? Math.round(value) : Math.round(value * 10) / 10);

export function short(value) {
  if (value === null || value === undefined) return "–";
  let step = 0;
  while (value >= 10000 && step < UNITS.length - 1) { value /= 1000; step += 1; }
  return `${round(value).toLocaleString()}${UNITS[step]}`;
}

export function millis(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1000 ? `${round(value / 1000)} s` : `${round(value)} ms`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

// Time of day of seconds since 1970.
export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

// An ISO time in the browser's zone; null is a dash.
export function moment(text) {
  if (!text) return "–";
  const time = new Date(text);
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString([], { hour12: false }) : time.toLocaleString([], { hour12: false });
}

export const count = (number, noun) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;
