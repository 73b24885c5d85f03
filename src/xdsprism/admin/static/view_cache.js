// The cache of a relay: how often it had an answer, and the servers behind it.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { ago, badge, number, params } from "./format.js";
import { onOverview, overview } from "./live.js";
import { Loader, panel, problem, table } from "./parts.js";

export function mount(root) {
  const top = h("div", {});
  const servers = h("div", {}, h("p", { class: "muted" }, "Loading…"));
  replace(root, h("h1", {}, "Cache"), top, servers);
  const loader = new Loader((signal) => get("/api/upstreams", {}, signal), (found) => replace(servers, drawServers(found)), (error) => replace(servers, problem(error)));
  const show = () => {
    const found = overview.now && overview.now.cache;
    if (found) replace(top, drawLookups(found));
    else if (overview.now) replace(top, h("p", { class: "muted" }, "This is a server, and has no cache."));
    if (found) loader.run();
    else if (overview.now) replace(servers);
  };
  show();
  const stop = onOverview(show);
  return {
    title: "Cache",
    close() {
      stop();
      loader.close();
    },
  };
}

function drawLookups(found) {
  const { hit = 0, miss = 0, stale = 0 } = found.lookups;
  const total = hit + miss + stale;
  const share = (value) => (total ? `${((100 * value) / total).toFixed(1)}%` : "–");
  const tile = (name, value, note, kind = "") => h("div", { class: `tile ${kind}` }, h("span", { class: "name" }, name), h("span", { class: "value" }, value), h("span", { class: "note" }, note));
  return h(
    "div",
    { class: "tiles" },
    tile("Hit rate", share(hit), `${number(hit)} of ${number(total)} lookups`),
    tile("Misses", share(miss), `${number(miss)} asked of a server`),
    tile("Stale answers", share(stale), `${number(stale)} lookups`, stale ? "warn" : ""),
    tile("Stale subscriptions", number(found.stale), "not confirmed since a server was lost", found.stale ? "warn" : ""),
    tile("Servers", `${found.connected} of ${found.upstreams}`, "connected", found.connected < found.upstreams ? "bad" : "good"),
  );
}

function drawServers(found) {
  const rows = found.upstreams.map((each) => [
    each.connected ? badge("good", "connected") : badge("bad", "not connected"),
    h("span", { class: "name" }, each.server),
    each.group ? params(each.group) : h("span", { class: "muted" }, "all clients"),
    `${each.protocol}, ${each.form}`,
    number(each.subscriptions),
    each.connected ? ago(each.since) : ago(each.last_connected),
    each.last_error ? h("span", { class: "message" }, each.last_error.error, " ", ago(each.last_error.time)) : h("span", { class: "muted" }, "none"),
  ]);
  const withheld = found.upstreams.flatMap((each) => each.quarantined.map((one) => [each.server, one.name, one.params ? params(one.params) : "", ago(one.until), h("span", { class: "message" }, one.error)]));
  const room = Object.entries(found.room || {}).map(([name, each]) => [name, ...Object.values(each).map((value) => (typeof value === "number" ? number(value) : String(value)))]);
  const names = ["", ...Object.keys(Object.values(found.room || {})[0] || {})];
  return [
    panel("Servers", table("Servers", [["State", "narrow"], ["Server", ""], ["Group", ""], ["Protocol", ""], ["Subscriptions", "right narrow"], ["Since", "narrow"], ["Last error", "wide"]], rows, "There is no server yet: the first client brings one.")),
    room.length ? panel("Room on the streams to the servers", table("Room", names.map((each, at) => [each.replaceAll("_", " "), at ? "right" : ""]), room)) : null,
    withheld.length ? panel("Withheld subscriptions", table("Withheld subscriptions", [["Server", ""], ["Name", ""], ["Params", ""], ["Until", "narrow"], ["Error", "wide"]], withheld)) : null,
  ];
}
