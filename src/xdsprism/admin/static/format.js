// Turns values into texts and small elements.

import { h } from "./dom.js";

const WORDS = new Intl.NumberFormat("en");

export function number(value) {
  return WORDS.format(value);
}

export function counted(value, word, words = `${word}s`) {
  return `${number(value)} ${value === 1 ? word : words}`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  if (size < 1024 * 1024) return `${(size / 1024).toFixed(1)} KiB`;
  return `${(size / 1024 / 1024).toFixed(1)} MiB`;
}

export function rate(value) {
  return value >= 100 ? number(Math.round(value)) : value >= 10 ? value.toFixed(1) : value.toFixed(2).replace(/\.?0+$/, "");
}

export function seconds(value) {
  if (value < 1) return "now";
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 129600) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}

/** How long ago a time was, with the time itself as a tooltip. */
export function ago(text) {
  if (!text) return h("span", { class: "muted" }, "never");
  const passed = Math.max(0, (Date.now() - Date.parse(text)) / 1000);
  return h("time", { datetime: text, title: text }, passed < 1 ? "now" : `${seconds(passed)} ago`);
}

export function clock(text) {
  const at = new Date(text);
  return h("time", { datetime: text, title: text }, Number.isNaN(at.getTime()) ? text : at.toLocaleTimeString("en-GB"));
}

const KINDS = { SYNCED: "good", STALE: "warn", NACKED: "bad", "NOT SENT": "idle" };

/** A state, by colour and word. */
export function state(word) {
  return h("span", { class: `state ${KINDS[word] || "idle"}` }, word);
}

export function badge(kind, word) {
  return h("span", { class: `state ${kind}` }, word);
}

/** Params as small pairs; `none` where there are none. */
export function params(pairs, none = "no params") {
  const entries = Object.entries(pairs || {});
  if (!entries.length) return h("span", { class: "muted" }, none);
  return h("span", { class: "params" }, entries.map(([key, value]) => h("code", {}, `${key}=${value}`)));
}

export function constraint(text) {
  if (text === null || text === undefined) return h("span", { class: "muted" }, "does not exist");
  return text === "true" ? h("span", { class: "muted" }, "everybody") : h("code", {}, text);
}

/** The address of a view, as in `#/resource?type=rds&name=main`. */
export function link(view, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}
