// One client: who it is, and each of its resources with what it has, what it should have, and what it rejected.

import { get } from "./api.js";
import { compare, draw as drawDiff, lines } from "./diff.js";
import { h, replace } from "./dom.js";
import { ago, badge, clock, constraint, counted, link, number, params, seconds, state } from "./format.js";
import { onOverview, overview } from "./live.js";
import { Loader, PAGE, facts, pager, panel, problem, table } from "./parts.js";

const STATES = ["NACKED", "STALE", "NOT SENT", "SYNCED"];

export function mount(root, query, address) {
  const stream = query.get("stream") || "0";
  const wanted = { stream, state: query.get("state") || "", offset: Number(query.get("offset")) || 0 };
  const top = h("div", {}, h("p", { class: "muted" }, "Loading…"));
  const word = h("select", { "aria-label": "State", "data-key": "state" }, h("option", { value: "" }, "All states"), STATES.map((each) => h("option", { value: each }, each)));
  const list = h("div", {});
  const resources = panel("Resources", h("div", { class: "toolbar" }, word), list);
  resources.hidden = true;
  replace(root, top, resources);
  word.value = wanted.state;

  const loader = new Loader(
    (signal) => {
      const asked = { stream, offset: wanted.offset, limit: PAGE, bodies: 1 };
      if (wanted.state) asked.state = wanted.state;
      return get("/api/client", asked, signal);
    },
    (page) => {
      const found = page.clients[0];
      resources.hidden = false;
      document.title = `${nameOf(found)} · xdsprism`;
      replace(top, drawClient(found));
      replace(list, drawResources(page, wanted.offset, go));
    },
    (error) => {
      resources.hidden = true;
      replace(top, h("h1", {}, "Client"), problem(error), h("p", {}, h("a", { href: link("clients") }, "All clients")));
    },
  );

  function go(offset) {
    wanted.offset = offset;
    address(wanted);
    loader.run();
  }

  word.addEventListener("change", () => {
    wanted.state = word.value;
    go(0);
  });
  loader.run();
  let last = "";
  const stop = onOverview(() => {
    const now = overview.now ? JSON.stringify([overview.now.clients, overview.now.revision, overview.now.totals.nacks]) : last;
    if (last && now !== last) loader.run();
    last = now;
  });
  return {
    title: "Client",
    search: word,
    close() {
      stop();
      loader.close();
    },
  };
}

function nameOf(found) {
  return (found.node && found.node.id) || `stream ${found.stream}`;
}

function drawClient(found) {
  const node = found.node || {};
  return [
    h("p", { class: "crumbs" }, h("a", { href: link("clients") }, "Clients"), " / ", nameOf(found)),
    h("h1", { class: "name" }, nameOf(found), " ", state(found.state)),
    facts([
      ["Params", params(found.params)],
      ["Address", h("code", {}, found.peer)],
      ["Proved", found.identities.length ? found.identities.map((each) => h("code", {}, each)) : null],
      ["Cluster", node.cluster],
      ["Program", node.user_agent],
      ["Protocol", `${found.delta ? "delta" : "SotW"}, ${found.method.split("/").at(-1)}`],
      ["Connected", ago(found.since)],
      ["Policy", found.policy ? [found.policy.rule, " as ", found.policy.identities.map((each) => h("code", {}, each))] : null],
      ["Beyond limits", Object.keys(found.limited).length ? Object.entries(found.limited).map(([key, value]) => `${key}: ${value}`).join(", ") : null],
    ]),
    panel("Types", table("Types", [["Type", "narrow"], ["State", "narrow"], ["Subscriptions", "right narrow"], ["Last ACK", "narrow"], ["Last NACK", "wide"]], found.types.map(typeRow), "It has asked for nothing yet.")),
  ];
}

function typeRow(each) {
  const nack = each.nack ? [clock(each.nack.time), " ", h("span", { class: "message" }, each.nack.message)] : h("span", { class: "muted" }, "none");
  return [
    h("a", { href: link("resources", { type: each.type_url }), "data-key": `type-${each.type_url}` }, each.type),
    [state(each.state), each.stale_seconds !== null ? ` for ${seconds(each.stale_seconds)}` : ""],
    number(each.subscriptions.total),
    each.acked ? `${seconds(each.acked.seconds_ago)}${each.acked.seconds_ago < 1 ? "" : " ago"}` : h("span", { class: "muted" }, "never"),
    nack,
  ];
}

function drawResources(page, offset, go) {
  const rows = page.resources.map((each) => [
    state(each.state),
    each.type,
    [h("a", { class: "row name", href: link("resource", { type: each.type_url, name: each.name }), "data-key": `${each.type_url} ${each.name} ${JSON.stringify(each.params)}` }, each.name), each.params ? [" ", params(each.params)] : null],
    each.current ? constraint(each.current.constraint) : h("span", { class: "muted" }, each.denied ? `denied: ${each.denied}` : "does not exist"),
    what(each),
  ]);
  const columns = [["State", "narrow"], ["Type", "narrow"], ["Resource", ""], ["Variant", "wide"], ["It has", "wide"]];
  return [
    table("Resources of this client", columns, rows, "There is no such resource."),
    page.left_out ? h("p", { class: "muted" }, `${counted(page.left_out, "resource")} more ${page.left_out === 1 ? "is" : "are"} not listed.`) : null,
    pager(page.total, offset, rows.length, go),
  ];
}

/** What the client has of a resource, against what it should have. */
function what(each) {
  const parts = [];
  if (each.error) parts.push(h("p", { class: "message" }, badge("bad", "rejected"), " ", each.error.message, each.current && each.current.origin ? h("span", { class: "muted" }, ` ${each.current.origin}`) : null));
  if (each.state === "SYNCED") parts.push(h("span", { class: "muted" }, each.current ? "the current version" : "nothing"));
  else if (each.has === null) parts.push(h("span", { class: "muted" }, "nothing yet"));
  else if (each.has.version === null) parts.push(h("span", { class: "muted" }, "an earlier version"));
  else parts.push(constraint(each.has.constraint), " ", h("code", { class: "version" }, each.has.version));
  if (each.stale_seconds !== null) parts.push(h("span", { class: "muted" }, ` has not answered for ${seconds(each.stale_seconds)}`));
  const before = each.has && each.has.body;
  const after = each.current && each.current.body;
  if (before && after) parts.push(h("details", { "data-key": `diff ${each.type_url} ${each.name}` }, h("summary", {}, "Difference to the current version"), drawDiff(compare(lines(before), lines(after)))));
  return parts;
}
