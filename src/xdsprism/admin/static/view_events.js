// What happens: changes, NACKs, clients that come and go, loads.

import { h, replace } from "./dom.js";
import { badge, clock, counted, link, number } from "./format.js";
import { events, onEvents } from "./live.js";
import { table } from "./parts.js";

const SHOWN = 200; // events
const CHANGES = 10; // of one revision, and variants of one change
const KINDS = ["revision", "nack", "recovered", "client", "load", "drain", "gap"];
const COLOURS = { revision: "info", nack: "bad", recovered: "good", client: "idle", load: "info", drain: "warn", gap: "warn" };
const WORDS = { "": "connecting", live: "These come as they happen.", lost: "The stream of events ended; it is opened again.", missing: "This server does not send events.", off: "connecting" };

export function mount(root) {
  let kind = "";
  let paused = false;
  const select = h("select", { "aria-label": "Kind", "data-key": "kind" }, h("option", { value: "" }, "All kinds"), KINDS.map((each) => h("option", { value: each }, each)));
  const pause = h("button", { type: "button", "data-key": "pause" }, "Pause");
  const text = h("span", { class: "muted", role: "status" });
  const list = h("div", {});
  replace(root, h("h1", {}, "Events"), h("div", { class: "toolbar" }, select, pause, text), list);
  const show = () => {
    text.textContent = paused ? "Paused." : WORDS[events.state];
    if (!paused) replace(list, draw(events.list.filter((each) => !kind || each.kind === kind)));
  };
  select.addEventListener("change", () => {
    kind = select.value;
    show();
  });
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    show();
  });
  const stop = onEvents(show);
  show();
  return { title: "Events", search: select, close: stop };
}

function draw(found) {
  const rows = found.slice(0, SHOWN).map((each) => [clock(each.time), badge(COLOURS[each.kind] || "idle", each.kind), h("div", { class: "event" }, tell(each))]);
  const columns = [["Time", "narrow"], ["Kind", "narrow"], ["What", "wide"]];
  return [table("Events", columns, rows, "Nothing has happened yet."), found.length > SHOWN ? h("p", { class: "muted" }, `The last ${number(SHOWN)} of ${number(found.length)} are shown.`) : null];
}

function client(each) {
  return h("a", { href: link("client", { stream: each.stream }) }, each.node || `stream ${each.stream}`);
}

function resource(type, name) {
  return h("a", { href: link("resource", { type, name }) }, name);
}

function tell(each) {
  if (each.kind === "revision") return revision(each);
  if (each.kind === "nack") return nack(each);
  if (each.kind === "recovered") return [client(each), ` accepts ${each.type || "everything"} again`];
  if (each.kind === "client") return [client(each), ` ${each.event}`, each.peer ? h("span", { class: "muted" }, ` from ${each.peer}`) : null];
  if (each.kind === "load") return load(each);
  if (each.kind === "gap") return "Some events are missing: this page was slow, or away.";
  const { id, kind, time, ...rest } = each;
  return h("span", { class: "message" }, Object.entries(rest).map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", "));
}

function revision(each) {
  const shown = (each.changes || []).slice(0, CHANGES);
  const left = (each.total ?? each.changes.length) - shown.length;
  const changes = shown.map((one) =>
    h("li", {}, badge({ added: "good", removed: "bad" }[one.change] || "info", one.change), " ", one.type, " ", resource(one.type_url, one.name), (one.variants || []).slice(0, CHANGES).map((variant) => [" ", variant.constraint === "true" ? null : h("code", {}, variant.constraint), variant.origin ? h("span", { class: "muted" }, ` ${variant.origin}`) : null])),
  );
  return [h("span", {}, `Revision ${number(each.revision)}`, each.by ? ` by ${each.by}` : "", each.total !== undefined ? `, ${number(each.total)} changed` : ""), h("ul", {}, changes, left > 0 ? h("li", { class: "muted" }, `and ${number(left)} more`) : null)];
}

function load(each) {
  const word = { ok: "accepted", refused: "refused", held_back: "held back" }[each.result] || each.result;
  const found = (each.problems || []).map((one) => h("li", {}, h("span", { class: "message" }, typeof one === "string" ? one : JSON.stringify(one))));
  const counts = each.resources === undefined ? "" : `: ${counted(each.resources, "resource")} in ${counted(each.files, "file")}`;
  return [badge(word === "accepted" ? "good" : "bad", word), ` the configuration${counts}`, each.warnings ? `, ${counted(each.warnings, "warning")}` : "", found.length ? h("ul", {}, found) : null];
}

function nack(each) {
  const found = (each.resources || []).map((one) => h("li", {}, one.name, " ", one.constraint ? h("code", {}, one.constraint) : null, one.origin ? h("span", { class: "muted" }, ` ${one.origin}`) : null));
  return [h("span", {}, client(each), ` rejected ${each.type}: `, h("span", { class: "message" }, each.message)), found.length ? h("ul", {}, found) : null];
}
