// All clients, by node, type and state.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { ago, link, number, params, state } from "./format.js";
import { onOverview, overview } from "./live.js";
import { Loader, PAGE, later, pager, problem, table } from "./parts.js";

const STATES = ["NACKED", "STALE", "NOT SENT", "SYNCED"];
const EVERY = 2; // overviews between two lists

export function mount(root, query, address) {
  const wanted = { node: query.get("node") || "", type: query.get("type") || "", state: query.get("state") || "", offset: Number(query.get("offset")) || 0 };
  const search = h("input", { type: "search", "data-key": "node", placeholder: "Part of a node id, or a pattern with *", "aria-label": "Node", value: wanted.node, spellcheck: "false", autocomplete: "off" });
  const type = h("select", { "aria-label": "Type", "data-key": "type" }, h("option", { value: "" }, "All types"));
  const word = h("select", { "aria-label": "State", "data-key": "state" }, h("option", { value: "" }, "All states"), STATES.map((each) => h("option", { value: each }, each)));
  const list = h("div", {}, h("p", { class: "muted" }, "Loading…"));
  replace(root, h("h1", {}, "Clients"), h("div", { class: "toolbar" }, search, type, word), list);

  const loader = new Loader(
    (signal) => {
      const asked = { ...wanted, node: wanted.node && (wanted.node.includes("*") ? wanted.node : `*${wanted.node}*`), brief: 1, limit: PAGE };
      return get("/api/clients", Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== "")), signal);
    },
    (page) => replace(list, draw(page, wanted.offset, go)),
    (error) => replace(list, problem(error)),
  );

  function fillTypes() {
    const known = overview.now ? overview.now.resources.types : [];
    const words = [...new Set([...known.map((each) => each.type), ...(wanted.type ? [wanted.type] : [])])];
    if (words.length + 1 !== type.options.length) type.replaceChildren(h("option", { value: "" }, "All types"), ...words.map((each) => h("option", { value: each }, each)));
    type.value = wanted.type;
    word.value = wanted.state;
  }

  function go(offset) {
    wanted.offset = offset;
    address(wanted);
    loader.run();
  }

  search.addEventListener("input", later(() => {
    wanted.node = search.value;
    go(0);
  }));
  type.addEventListener("change", () => {
    wanted.type = type.value;
    go(0);
  });
  word.addEventListener("change", () => {
    wanted.state = word.value;
    go(0);
  });
  fillTypes();
  loader.run();
  let passed = 0;
  let last = "";
  const stop = onOverview(() => {
    fillTypes();
    passed += 1;
    const now = overview.now ? JSON.stringify([overview.now.clients, overview.now.revision, overview.now.totals]) : last;
    if (passed >= EVERY && now !== last) {
      passed = 0;
      last = now;
      loader.run();
    }
  });
  return {
    title: "Clients",
    search,
    close() {
      stop();
      loader.close();
    },
  };
}

function draw(page, offset, go) {
  const rows = page.clients.map((each) => [
    state(each.state),
    h("a", { class: "row name", href: link("client", { stream: each.stream }), "data-key": `client-${each.stream}` }, (each.node && each.node.id) || `stream ${each.stream}`),
    h("span", { class: "types" }, each.types.map((one) => h("span", { class: `type ${one.state.replace(" ", "-")}`, title: `${one.type}: ${one.state}` }, one.type))),
    params(each.params),
    each.peer,
    ago(each.since),
  ]);
  const columns = [["State", "narrow"], ["Node", ""], ["Types", ""], ["Params", "wide"], ["Address", "narrow"], ["Since", "narrow"]];
  const limited = Object.keys(page.limited || {}).length;
  return [
    limited ? h("p", { class: "muted" }, `${number(limited)} addresses exceeded a limit on streams or fetches.`) : null,
    table("Clients", columns, rows, "No client is like that."),
    pager(page.total, offset, rows.length, go),
  ];
}
