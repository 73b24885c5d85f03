// Draws which variant answers which params.

import { h } from "./dom.js";
import { number } from "./format.js";

const COLUMNS = 8; // choices of the key that goes across, at most

const WORDS = { other: "other", absent: "absent" };

export function choiceText(choice) {
  return choice.is === "value" ? choice.value : WORDS[choice.is];
}

function choiceLabel(choice) {
  return choice.is === "value" ? h("span", {}, choice.value) : h("i", { class: "muted" }, WORDS[choice.is]);
}

/** A colour of the palette for each variant, by its number. */
export function swatch(at) {
  return h("span", { class: `swatch s${at % 12}`, "aria-hidden": "true" }, letter(at));
}

/** A, B, ... Z, AA, AB, ... */
export function letter(at) {
  return at < 26 ? String.fromCharCode(65 + at) : letter(Math.floor(at / 26) - 1) + letter(at % 26);
}

/**
 * Draw a matrix. `places`: the number of each of its variants among all of the resource. `pick` is called with the params
 * of a cell that is chosen, `hold` with a key and its choice. One key goes across, the others down.
 */
export function draw(found, places, pick, hold) {
  const axes = found.keys.filter((key) => !("held" in key));
  const held = found.keys.filter((key) => "held" in key);
  if (!axes.length && !held.length) return h("p", { class: "muted empty" }, "Everybody gets the same: no variant mentions a key.");
  const across = choose(axes);
  const down = axes.filter((key) => key !== across);
  const sizes = axes.map((key) => key.choices.length);
  const strides = sizes.map((_, at) => sizes.slice(at + 1).reduce((product, size) => product * size, 1));
  const cellAt = (chosen) => found.cells[axes.reduce((sum, key, at) => sum + chosen.get(key) * strides[at], 0)];

  const rows = combinations(down).map((row) =>
    h(
      "tr",
      {},
      down.map((key, at) => h("th", { scope: "row" }, at < down.length ? choiceLabel(key.choices[row.get(key)]) : null)),
      (across ? across.choices : [null]).map((_, column) => {
        const chosen = new Map(row);
        if (across) chosen.set(across, column);
        const params = Object.fromEntries(axes.map((key) => [key.key, key.choices[chosen.get(key)]]));
        for (const key of held) params[key.key] = key.held;
        return cell(found, places, cellAt(chosen), params, pick);
      }),
    ),
  );
  const heads = across
    ? [
        h("tr", {}, down.map((key) => h("th", { rowspan: 2, scope: "col", class: "key" }, key.key)), h("th", { class: "key", scope: "colgroup", colspan: across.choices.length }, across.key)),
        h("tr", {}, across.choices.map((choice) => h("th", { scope: "col" }, choiceLabel(choice)))),
      ]
    : [];
  return [
    held.length ? h("div", { class: "held" }, "With ", held.map((key) => holder(key, hold)), h("span", { class: "muted" }, " (the table would be too large with all keys)")) : null,
    h(
      "div",
      { class: "scroll", "data-scroll": "matrix" },
      h("table", { class: "matrix" }, h("caption", {}, "Which variant answers which params"), h("thead", {}, heads), h("tbody", {}, rows)),
    ),
    found.keys.filter((key) => key.values_left_out).map((key) => h("p", { class: "muted" }, `${number(key.values_left_out)} more values of ${key.key} are not shown.`)),
    legend(found),
  ];
}

/** The key that goes across: of those that are short enough, the longest; or the shortest. */
function choose(axes) {
  const byLength = [...axes].sort((a, b) => a.choices.length - b.choices.length);
  return byLength.filter((key) => key.choices.length <= COLUMNS).at(-1) || byLength[0] || null;
}

function combinations(keys) {
  let found = [new Map()];
  for (const key of keys) found = found.flatMap((each) => key.choices.map((_, at) => new Map([...each, [key, at]])));
  return found;
}

function cell(found, places, value, params, pick) {
  const known = typeof value === "number";
  const what = known ? `variant ${letter(places[value])}, ${found.variants[value].constraint}` : value === "unknown" ? "not in the cache" : "does not exist";
  const where = Object.entries(params).map(([key, choice]) => `${key} ${choiceText(choice)}`).join(", ");
  const inside = known ? swatch(places[value]) : h("span", { class: "nothing" }, value === "unknown" ? "?" : "–");
  return h("td", {}, h("button", { type: "button", class: "cell", title: `${where}: ${what}`, "aria-label": `${where}: ${what}`, onclick: () => pick(params) }, inside));
}

function holder(key, hold) {
  const value = (choice) => (choice.is === "value" ? `=${choice.value}` : "");
  const choices = key.choices.filter((choice) => choice.is !== "other");
  const select = h("select", { "aria-label": key.key, "data-key": `hold-${key.key}` }, choices.map((choice) => h("option", { value: value(choice) }, choiceText(choice))));
  select.value = value(key.held);
  select.addEventListener("change", () => hold(key.key, select.value ? select.value.slice(1) : null));
  return h("label", {}, h("code", {}, key.key), " ", select);
}

function legend(found) {
  const nothing = found.cells.includes(null) ? h("li", {}, h("span", { class: "nothing" }, "–"), " does not exist for these params") : null;
  const unknown = found.cells.includes("unknown") ? h("li", {}, h("span", { class: "nothing" }, "?"), " not in the cache: the relay would ask") : null;
  return h("ul", { class: "variants-legend" }, nothing, unknown);
}
