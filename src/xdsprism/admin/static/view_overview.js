// What is going on: clients by state, what is sent, who is in trouble, the configuration.

import { h, replace, svg } from "./dom.js";
import { ago, badge, counted, link, number, rate, seconds, state } from "./format.js";
import { onOverview, overview } from "./live.js";
import { facts, panel, table } from "./parts.js";

const STATES = ["SYNCED", "STALE", "NACKED", "NOT SENT"];

export function mount(root) {
  const show = () => {
    if (overview.now) replace(root, draw(overview.now));
    else replace(root, h("p", { class: "muted" }, overview.error ? "" : "Loading…"));
  };
  show();
  return { title: "Overview", close: onOverview(show) };
}

function draw(now) {
  return [
    h("h1", {}, "Overview"),
    now.config && now.config.held_back ? heldBack(now.config.held_back) : null,
    h("div", { class: "tiles" }, tiles(now)),
    h("div", { class: "columns" }, clients(now), pushes(now)),
    troubled(now),
    h("div", { class: "columns" }, now.config ? config(now.config) : cache(now.cache), types(now.resources)),
  ];
}

function tile(name, value, note, kind = "", href = null) {
  const inside = [h("span", { class: "name" }, name), h("span", { class: "value" }, value), h("span", { class: "note" }, note)];
  return href ? h("a", { class: `tile ${kind}`, href, "data-key": name }, inside) : h("div", { class: `tile ${kind}` }, inside);
}

function tiles(now) {
  const last = overview.samples.at(-1);
  const { states, total } = now.clients;
  return [
    tile("Clients", number(total), `${now.streams.delta} delta, ${now.streams.sotw} SotW`, "", link("clients")),
    tile("Synced", total ? `${Math.floor((100 * states.SYNCED) / total)}%` : "–", `${number(states.SYNCED)} of ${number(total)}`, total && states.SYNCED === total ? "good" : ""),
    tile("Pushes a second", last ? rate(last.pushes) : "–", `${number(now.totals.responses)} in all`),
    tile("NACKs", number(now.totals.nacks), states.NACKED ? `${counted(states.NACKED, "client")} now` : "no client now", states.NACKED ? "bad" : "", link("clients", { state: "NACKED" })),
    tile("Resources", number(now.resources.total), counted(now.resources.variants, "variant"), "", link("resources")),
    tile("Revision", number(now.revision), now.unready ? `not ready: ${now.unready}` : "ready", now.unready ? "bad" : ""),
  ];
}

function clients(now) {
  const { states, total } = now.clients;
  const bar = STATES.filter((word) => states[word]).map((word) => {
    const part = h("span", { class: `part ${kind(word)}`, title: `${word}: ${states[word]}` });
    part.style.flexGrow = String(states[word]);
    return part;
  });
  return panel(
    "Clients by state",
    h("div", { class: "bar", role: "img", "aria-label": STATES.map((word) => `${word} ${states[word]}`).join(", ") }, bar),
    h(
      "ul",
      { class: "legend" },
      STATES.map((word) =>
        h("li", {}, h("a", { href: link("clients", { state: word }), "data-key": `state-${word}` }, state(word), h("b", {}, number(states[word])), h("span", { class: "muted" }, total ? `${((100 * states[word]) / total).toFixed(1)}%` : "")),
      )),
    ),
  );
}

function kind(word) {
  return { SYNCED: "good", STALE: "warn", NACKED: "bad" }[word] || "idle";
}

const [WIDTH, HEIGHT] = [560, 96];

function pushes() {
  const { samples } = overview;
  if (samples.length < 2) return panel("Pushes a second", h("p", { class: "muted empty" }, "The curve begins with the next seconds."));
  const most = Math.max(1, ...samples.map((each) => Math.max(each.pushes, each.acks)));
  const points = (name) =>
    samples.map((each, at) => `${((WIDTH * at) / (samples.length - 1)).toFixed(1)},${(HEIGHT - 2 - (each[name] * (HEIGHT - 8)) / most).toFixed(1)}`).join(" ");
  const last = samples.at(-1);
  return panel(
    "Pushes a second",
    svg(
      "svg",
      { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Pushes a second, now ${rate(last.pushes)}` },
      svg("polygon", { class: "area", points: `0,${HEIGHT} ${points("pushes")} ${WIDTH},${HEIGHT}` }),
      svg("polyline", { class: "acks", points: points("acks") }),
      svg("polyline", { class: "pushes", points: points("pushes") }),
    ),
    h(
      "p",
      { class: "keys" },
      h("span", { class: "key pushes" }, `pushes ${rate(last.pushes)}`),
      h("span", { class: "key acks" }, `ACKs ${rate(last.acks)}`),
      h("span", { class: "muted" }, `at most ${rate(most)} in the last ${seconds(samples.length * 2)}`),
    ),
  );
}

function troubled(now) {
  if (!now.troubled.length) return panel("In trouble", h("p", { class: "muted empty" }, now.clients.total ? "No client rejected anything, and none is behind." : "No client is connected."));
  const rows = now.troubled.map((each) => [
    state(each.state),
    h("a", { href: link("client", { stream: each.stream }), "data-key": `trouble-${each.stream}` }, each.node || `stream ${each.stream}`),
    each.type,
    `${seconds(each.seconds)}`,
    h("span", { class: "message" }, each.message || "it has not answered the newest response"),
  ]);
  return panel("In trouble", table("Clients in trouble", [["State", "narrow"], ["Node"], ["Type", "narrow"], ["For", "narrow"], ["Why", "wide"]], rows));
}

function load(report) {
  if (!report) return h("span", { class: "muted" }, "none");
  return [report.ok ? badge("good", "accepted") : badge("bad", "refused"), " ", ago(report.time), report.errors ? `, ${counted(report.errors, "error")}` : "", report.warnings ? `, ${counted(report.warnings, "warning")}` : ""];
}

function config(found) {
  return panel(
    "Configuration",
    facts([
      ["From", found.from.map((path) => h("code", {}, path))],
      ["Last load", load(found.last_load)],
      ["Last good load", found.last_good_load ? ago(found.last_good_load.time) : h("span", { class: "muted" }, "none")],
      ["First error", found.last_load && found.last_load.first_error ? h("span", { class: "message" }, found.last_load.first_error) : null],
      ["Held back", found.held_back ? found.held_back.why.join("; ") : h("span", { class: "muted" }, "nothing")],
    ]),
  );
}

function heldBack(held) {
  return h(
    "div",
    { class: "notice warn", role: "alert" },
    h("p", {}, h("b", {}, "A change is held back. "), held.why.join("; ")),
    h("p", {}, "It removes ", held.removals.map((each) => `${number(each.removed)} of ${number(each.of)} ${each.type}`).join(", "), ". If that is meant, run ", h("code", {}, `xdsprism confirm --admin ${location.host} --id ${held.id}`)),
  );
}

function cache(found) {
  if (!found) return null;
  return panel("Cache", facts([
    ["Servers", `${found.connected} of ${found.upstreams} connected`],
    ["Hits", number(found.lookups.hit || 0)],
    ["Misses", number(found.lookups.miss || 0)],
    ["Stale answers", number(found.lookups.stale || 0)],
  ]), h("p", {}, h("a", { href: link("cache") }, "More about the cache")));
}

function types(found) {
  const rows = found.types.map((each) => [
    h("a", { href: link("resources", { type: each.type_url }), "data-key": `type-${each.type_url}` }, each.type),
    number(each.resources),
    number(each.variants),
  ]);
  return panel("Resources by type", table("Resources by type", [["Type"], ["Resources", "right"], ["Variants", "right"]], rows, "Nothing is served."));
}
