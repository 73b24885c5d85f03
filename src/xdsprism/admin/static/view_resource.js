// One resource: its variants, which of them answers which params and why, how two differ, and who has which.

import { get } from "./api.js";
import { compare, draw as drawDiff, lines } from "./diff.js";
import { h, replace } from "./dom.js";
import { ago, badge, bytes, constraint, counted, link, number, params as shownParams, seconds, state } from "./format.js";
import { onOverview, overview } from "./live.js";
import { draw as drawMatrix, letter, swatch } from "./matrix.js";
import { Loader, PAGE, later, pager, panel, problem, table } from "./parts.js";

const MOST = 200; // variants that are listed

/** Read params as people type them: `env=prod, tier="a b"`, also with "and" between them, or each in a line of its own. */
export function parse(text) {
  const found = {};
  const pattern = /\s*(?:(?:,|;|\band\b|&)\s*)*([^\s=,;]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s,;]*))/y;
  while (pattern.lastIndex < text.length) {
    const from = pattern.lastIndex;
    const match = pattern.exec(text);
    if (!match) {
      if (text.slice(from).trim() === "") break;
      throw new Error(`write KEY=VALUE, not ${text.slice(from).trim()}`);
    }
    if (match[1] in found) throw new Error(`${match[1]} is given twice`);
    found[match[1]] = match[2] ?? match[3] ?? match[4];
  }
  return found;
}

function written(pairs) {
  return Object.entries(pairs).map(([key, value]) => `${key}=${/^[^\s,;"']*$/.test(value) ? value : value.includes('"') ? `'${value}'` : `"${value}"`}`).join(" ");
}

export function mount(root, query, address) {
  const type = query.get("type") || "";
  const name = query.get("name") || "";
  const wanted = { type, name, params: query.get("params") || "", offset: 0 };
  const held = {};
  let revision = null;
  let bodies = new Map();
  let variants = [];
  let rows = [];
  let opened = -1; // the variant whose contents are shown

  const summary = h("div", {}, h("p", { class: "muted" }, "Loading…"));
  const list = h("div", {});
  const matrix = h("div", {});
  const answer = h("div", { "aria-live": "polite" });
  const difference = h("div", {});
  const who = h("div", {});
  const box = h("input", { type: "text", id: "params", "data-key": "params", "aria-label": "Params", placeholder: "env=prod tier=a", value: wanted.params, spellcheck: "false", autocomplete: "off", autocapitalize: "off" });
  const one = h("select", { "aria-label": "From", "data-key": "from" });
  const other = h("select", { "aria-label": "To", "data-key": "to" });
  replace(
    root,
    h("p", { class: "crumbs" }, h("a", { href: link("resources") }, "Resources"), " / ", name),
    h("h1", { class: "name" }, name),
    summary,
    panel("Variants", list),
    panel("Which variant answers which params", matrix),
    panel("What would a client get?", h("div", { class: "toolbar" }, box), answer),
    panel("Difference of two variants", h("div", { class: "toolbar" }, one, h("span", { class: "muted" }, "to"), other), difference),
    panel("Who has which", who),
  );

  const asked = { type, name };
  const resource = new Loader((signal) => get("/api/resources", { ...asked, bodies: 1 }, signal), showResource, (error) => replace(summary, problem(error)));
  const table_ = new Loader((signal) => get("/api/matrix", withParams(held), signal), (found) => replace(matrix, drawMatrix(found, found.variants.map(placeOf), pick, hold)), (error) => replace(matrix, problem(error)));
  const holders = new Loader((signal) => get("/api/holders", { ...asked, offset: wanted.offset, limit: PAGE }, signal), showHolders, (error) => replace(who, problem(error)));
  const explain = new Loader((signal) => get("/api/explain", withParams(parse(wanted.params)), signal), (found) => replace(answer, drawAnswer(found)), (error) => replace(answer, h("p", { class: "problem" }, error.message)));

  function withParams(pairs) {
    const text = new URLSearchParams(asked);
    for (const [key, value] of Object.entries(pairs)) text.append("param", `${key}=${value}`);
    return text;
  }

  function load() {
    for (const each of [resource, holders, explain]) each.run();
  }

  /** The number of a variant in the list; further ones, which came since, are numbered after it. */
  function placeOf(variant, at) {
    const same = variants.findIndex((each) => each.version === variant.version && each.constraint === variant.constraint);
    return same < 0 ? variants.length + at : same;
  }

  function showResource(page) {
    revision = page.revision;
    const found = page.resources[0];
    if (!found) {
      replace(summary, h("p", { class: "problem", role: "alert" }, "There is no such resource (any more)."));
      variants = [];
      bodies = new Map();
    } else {
      replace(summary, h("p", {}, badge("idle", found.type), " ", h("span", { class: "muted" }, found.type_url), found.aliases ? [" also called ", found.aliases.map((each) => h("code", {}, each))] : null, ". ", counted(found.variants.length, "variant"), ", ", counted(found.subscribers ?? 0, "subscription"), "."));
      variants = found.variants.filter((each) => each.exists !== false);
      bodies = new Map(variants.map((each, at) => [String(at), each.body]));
    }
    drawVariants(found ? found.variants : []);
    fillSelects();
    drawDifference();
    table_.run();
  }

  function drawVariants(found) {
    rows = found;
    const isCached = rows.some((each) => "upstream" in each);
    const columns = isCached ? [["", "narrow"], ["For", "wide"], ["Version", ""], ["Server", ""], ["Age", "narrow"], ["Size", "right narrow"]] : [["", "narrow"], ["For", "wide"], ["Version", ""], ["Written at", ""], ["Size", "right narrow"]];
    const cells = rows.slice(0, MOST).map((each) => [
      each.exists === false ? "–" : swatch(variants.indexOf(each)),
      each.exists === false ? ["nothing for ", constraint(each.constraint)] : constraint(each.constraint),
      each.version ? h("code", { class: "version", title: each.version }, each.version) : "",
      ...(isCached ? [each.upstream || h("span", { class: "muted" }, "an earlier run"), [seconds(each.age_seconds), each.stale ? [" ", badge("warn", "stale"), " ", each.stale_since ? ago(each.stale_since) : null] : null]] : [each.origin || h("span", { class: "muted" }, "a program")]),
      each.bytes === undefined ? "" : bytes(each.bytes),
    ]);
    const more = rows.length - cells.length;
    replace(list, table("Variants", columns, cells), more ? h("p", { class: "muted" }, `and ${number(more)} more, which the matrix and the box below know`) : null, variants.length ? drawContents() : null);
  }

  /** Buttons that show the contents of one variant. */
  function drawContents() {
    const body = bodies.get(String(opened));
    const toggle = (at) => {
      opened = opened === at ? -1 : at;
      drawVariants(rows);
    };
    const buttons = variants.slice(0, MOST).map((each, at) => h("button", { type: "button", "data-key": `contents-${at}`, "aria-pressed": String(opened === at), "aria-label": `Contents of ${letter(at)}`, onclick: () => toggle(at) }, swatch(at)));
    return [h("div", { class: "contents" }, h("span", { class: "muted" }, "Contents of"), buttons), body === undefined ? null : h("pre", { tabindex: "0", "data-scroll": "contents" }, typeof body === "string" ? body : JSON.stringify(body, null, 2))];
  }

  function fillSelects() {
    for (const [select, at] of [[one, 0], [other, 1]]) {
      const before = select.value;
      select.replaceChildren(...variants.map((each, number_) => h("option", { value: String(number_) }, `${letter(number_)}  ${each.constraint}`)));
      select.value = bodies.has(before) && before !== "" ? before : String(Math.min(at, variants.length - 1));
    }
  }

  function drawDifference() {
    if (variants.length < 2) {
      replace(difference, h("p", { class: "muted empty" }, "There is only one variant."));
      return;
    }
    replace(difference, drawDiff(compare(lines(bodies.get(one.value)), lines(bodies.get(other.value)))));
  }

  function showHolders(found) {
    const counts = found.variants.map((each) => h("li", {}, constraint(each.constraint), " ", h("b", {}, number(each.subscriptions))));
    const rows = found.holders.map((each, at) => [
      h("a", { class: "row", href: link("client", { stream: each.stream }), "data-key": `holder-${at}` }, each.node || `stream ${each.stream}`),
      shownParams(each.params),
      constraint(each.constraint),
      state(each.state),
    ]);
    replace(
      who,
      found.variants.length > 1 ? h("ul", { class: "counts" }, counts) : null,
      table("Who has which variant", [["Client", ""], ["Params", "wide"], ["Variant", "wide"], ["State", "narrow"]], rows, "Nobody subscribes to it."),
      pager(found.total, wanted.offset, rows.length, (offset) => {
        wanted.offset = offset;
        holders.run();
      }),
    );
  }

  function pick(choices) {
    const values = Object.entries(choices).filter(([, choice]) => choice.is !== "absent");
    box.value = written(Object.fromEntries(values.map(([key, choice]) => [key, choice.is === "value" ? choice.value : "other"])));
    type_();
    box.focus();
  }

  function hold(key, value) {
    if (value === null) delete held[key];
    else held[key] = value;
    table_.run();
  }

  function type_() {
    wanted.params = box.value;
    address({ type, name, params: wanted.params });
    explain.run();
  }

  box.addEventListener("input", later(type_, 150));
  for (const select of [one, other]) select.addEventListener("change", drawDifference);
  load();
  const stop = onOverview(() => {
    if (overview.now && revision !== null && overview.now.revision !== revision) load();
  });
  return {
    title: name,
    search: box,
    close() {
      stop();
      for (const each of [resource, table_, holders, explain]) each.close();
    },
  };
}

function drawAnswer(found) {
  const why = (each) => {
    if (each.fails === null) return "a newer variant matches these params too";
    const has = Object.entries(each.has).map(([key, value]) => (value === null ? `there is no ${key}` : `${key} is ${value}`)).join(", ");
    return ["needs ", h("code", {}, each.fails), has ? `, but ${has}` : ""];
  };
  const head = found.variant
    ? h("p", { class: "answer good" }, badge("good", "gets"), " ", constraint(found.variant.constraint), found.variant.origin ? h("span", { class: "muted" }, ` ${found.variant.origin}`) : null)
    : h("p", { class: "answer" }, badge("idle", "nothing"), found.absent === null ? " It is not in the cache: the relay would ask its server." : [" It does not exist for these params. Caches may remember this for all that match ", h("code", {}, found.absent)]);
  const rows = found.others.map((each) => [each.exists === false ? ["nothing for ", constraint(each.constraint)] : constraint(each.constraint), h("span", { class: "message" }, why(each))]);
  return [h("p", { class: "muted" }, "A client with ", shownParams(found.params)), head, rows.length ? table("Why not the others", [["Other variant", ""], ["Why not", "wide"]], rows) : null];
}
