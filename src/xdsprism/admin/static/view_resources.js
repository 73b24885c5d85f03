// All resources, by type and by a part of the name.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { constraint, link, number } from "./format.js";
import { onOverview, overview } from "./live.js";
import { Loader, PAGE, later, pager, problem, table } from "./parts.js";

const CONSTRAINTS = 3; // shown of one resource

export function mount(root, query, address) {
  const wanted = { type: query.get("type") || "", search: query.get("search") || "", offset: Number(query.get("offset")) || 0 };
  let seen = null;

  const search = h("input", { type: "search", id: "search", "data-key": "search", placeholder: "Part of a name", "aria-label": "Part of a name", value: wanted.search, spellcheck: "false", autocomplete: "off" });
  const type = h("select", { "aria-label": "Type", "data-key": "type" }, h("option", { value: "" }, "All types"));
  const list = h("div", { "aria-live": "off" }, h("p", { class: "muted" }, "Loading…"));
  replace(root, h("h1", {}, "Resources"), h("div", { class: "toolbar" }, search, type), list);

  const loader = new Loader(
    (signal) => {
      const asked = { offset: wanted.offset, limit: PAGE };
      if (wanted.type) asked.type = wanted.type;
      if (wanted.search) asked.search = wanted.search;
      return get("/api/resources", asked, signal);
    },
    (page) => {
      seen = page.revision;
      replace(list, draw(page, wanted.offset, go));
      fillTypes();
    },
    (error) => replace(list, problem(error)),
  );

  function fillTypes() {
    const known = overview.now ? overview.now.resources.types : [];
    const options = [h("option", { value: "" }, "All types"), ...known.map((each) => h("option", { value: each.type_url }, `${each.type} (${number(each.resources)})`))];
    if (wanted.type && !known.some((each) => each.type_url === wanted.type)) options.push(h("option", { value: wanted.type }, wanted.type.split(".").at(-1)));
    const texts = (nodes) => [...nodes].map((each) => each.textContent).join("\n");
    if (texts(type.options) !== texts(options)) type.replaceChildren(...options);
    type.value = wanted.type;
  }

  function go(offset) {
    wanted.offset = offset;
    address(wanted);
    loader.run();
  }

  const typed = later(() => {
    wanted.search = search.value;
    go(0);
  });
  search.addEventListener("input", typed);
  type.addEventListener("change", () => {
    wanted.type = type.value;
    go(0);
  });
  fillTypes();
  loader.run();
  const stop = onOverview(() => {
    fillTypes();
    if (overview.now && seen !== null && overview.now.revision !== seen) loader.run();
  });
  return {
    title: "Resources",
    search,
    close() {
      stop();
      loader.close();
    },
  };
}

function draw(page, offset, go) {
  const rows = page.resources.map((each) => [
    each.type,
    h("a", { class: "row name", href: link("resource", { type: each.type_url, name: each.name }), "data-key": `${each.type_url} ${each.name}` }, each.name),
    variants(each),
    each.params.length ? h("span", { class: "params" }, each.params.map((key) => h("code", {}, key))) : h("span", { class: "muted" }, "–"),
    number(each.subscribers ?? 0),
  ]);
  const columns = [["Type", "narrow"], ["Name", "wide"], ["Variants", "wide"], ["By", ""], ["Clients", "right narrow"]];
  return [table("Resources", columns, rows, "No resource has such a name."), pager(page.total, offset, rows.length, go)];
}

function variants(each) {
  const shown = each.variants.slice(0, CONSTRAINTS);
  const more = each.variants.length + (each.variants_left_out || 0) - shown.length;
  return h(
    "span",
    { class: "variants" },
    shown.map((variant) => h("span", { class: variant.stale ? "variant old" : "variant" }, variant.exists === false ? ["nothing for ", constraint(variant.constraint)] : constraint(variant.constraint))),
    more ? h("span", { class: "muted" }, `and ${number(more)} more`) : null,
  );
}
