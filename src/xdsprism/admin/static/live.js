// Follows the server: the overview, every other second, and events while a view wants them. Nothing while the page is
// hidden.

import { ApiError, follow, get } from "./api.js";

const EVERY = 2000; // milliseconds between two overviews
const KEPT = 1000; // events
const SAMPLES = 90; // overviews whose rates are drawn
const RECALLED = 100; // revisions from before the page was opened
const FLUSH = 400; // milliseconds that events are collected before they are shown

export const overview = { now: null, error: null, samples: [] };
export const events = { list: [], state: "off", missing: false };

const listeners = new Set(); // of overviews
const watchers = new Set(); // of events
let timer = null;
let stream = null;
let lastId = "";
let flushing = null;
let recalled = false;

/** Call a function with each new overview, until the returned function is called. */
export function onOverview(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Call a function when there are new events, until the returned function is called. */
export function onEvents(listener) {
  watchers.add(listener);
  openStream();
  return () => {
    watchers.delete(listener);
    if (!watchers.size) closeStream();
  };
}

export function start() {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
      timer = null;
      closeStream();
    } else {
      poll();
      openStream();
    }
  });
  return poll();
}

async function poll() {
  clearTimeout(timer);
  timer = null;
  try {
    note(await get("/api/overview"));
    overview.error = null;
  } catch (error) {
    overview.error = error;
  }
  for (const listener of [...listeners]) listener();
  if (!document.hidden && timer === null) timer = setTimeout(poll, overview.error ? 2 * EVERY : EVERY);
}

/** Keep the rates between this overview and the last one. */
function note(found) {
  const before = overview.now;
  overview.now = found;
  if (before === null || before.time === found.time) return;
  const passed = (Date.parse(found.time) - Date.parse(before.time)) / 1000;
  const more = (name) => Math.max(0, (found.totals[name] - before.totals[name]) / passed);
  if (passed <= 0 || passed > 10 * EVERY) return;
  overview.samples.push({ time: found.time, pushes: more("responses"), acks: more("acks"), nacks: more("nacks") });
  if (overview.samples.length > SAMPLES) overview.samples.shift();
}

/** Begin with the revisions that the server remembers, so that there is something to see at once. */
async function recall() {
  if (recalled) return;
  recalled = true;
  try {
    const found = await get("/api/history", { limit: RECALLED });
    const known = new Set(events.list.filter((each) => each.kind === "revision").map((each) => each.revision));
    events.list.push(...found.revisions.filter((each) => !known.has(each.revision)).map((each) => ({ kind: "revision", ...each })));
  } catch {
    recalled = false;
  }
  flush();
}

function openStream() {
  if (stream !== null || document.hidden || !watchers.size || events.missing) return;
  stream = new AbortController();
  recall();
  run(stream);
}

function closeStream() {
  if (stream === null) return;
  stream.abort();
  stream = null;
  events.state = "off";
}

async function run(own) {
  let wait = 1000;
  while (stream === own) {
    try {
      const opened = () => {
        wait = 1000;
        setState("live");
      };
      await follow("/api/events", { after: lastId, signal: own.signal, take, opened });
    } catch (error) {
      if (own.signal.aborted) return;
      if (error instanceof ApiError && error.status === 404) {
        events.missing = true;
        stream = null;
        setState("missing");
        return;
      }
    }
    if (stream !== own) return;
    setState("lost");
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, 30000);
  }
}

function setState(state) {
  events.state = state;
  flush();
}

function take({ id, event, data }) {
  if (id) lastId = id;
  let contents;
  try {
    contents = JSON.parse(data);
  } catch {
    return;
  }
  events.list.unshift({ id, kind: event, ...contents });
  if (events.list.length > KEPT) events.list.length = KEPT;
  flushing = flushing || setTimeout(flush, FLUSH);
}

function flush() {
  clearTimeout(flushing);
  flushing = null;
  for (const watcher of [...watchers]) watcher();
}
