// Parts that several views are made of.

import { h } from "./dom.js";
import { counted, number } from "./format.js";

export const PAGE = 100; // rows of a list

export function panel(title, ...children) {
  return h("section", { class: "panel" }, title ? h("h2", {}, title) : null, children);
}

/** A table. `columns`: [title, class]; `rows`: lists of cells, or rows made already. */
export function table(caption, columns, rows, empty = "There is nothing.") {
  if (!rows.length) return h("p", { class: "muted empty" }, empty);
  const cells = (row) => row.map((cell, at) => h("td", { class: columns[at][1] || null, "data-label": columns[at][0] }, cell));
  return h(
    "div",
    { class: "scroll", "data-scroll": caption },
    h(
      "table",
      { class: "rows" },
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", { scope: "col", class: kind || null }, title)))),
      h("tbody", {}, rows.map((row) => (row instanceof Node ? row : h("tr", {}, cells(row))))),
    ),
  );
}

/** Where a list is, with buttons to the pages before and after. */
export function pager(total, offset, shown, go) {
  if (total <= shown && offset === 0) return h("p", { class: "pager muted" }, counted(total, "row"));
  const button = (text, to, key, disabled) =>
    h("button", { type: "button", "data-key": key, disabled, onclick: () => go(to) }, text);
  return h(
    "div",
    { class: "pager" },
    button("Previous", Math.max(0, offset - PAGE), "previous", offset === 0),
    h("span", { class: "muted" }, total ? `${number(offset + 1)} – ${number(offset + shown)} of ${number(total)}` : "0 rows"),
    button("Next", offset + PAGE, "next", offset + shown >= total),
  );
}

/** Call a function when nobody has called for it for a moment. */
export function later(function_, milliseconds = 200) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(function_, milliseconds);
  };
}

/** Name and value, as a list. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function problem(error) {
  return h("p", { class: "problem", role: "alert" }, error.status === 404 ? error.message : `This could not be loaded: ${error.message}`);
}

/**
 * Loads something again and again, never twice at once: `load` gets a signal that ends it when the view closes.
 * What comes while it loads makes it load once more.
 */
export class Loader {
  constructor(load, show, fail) {
    this.load = load;
    this.show = show;
    this.fail = fail;
    this.stop = new AbortController();
    this.running = false;
    this.again = false;
  }

  async run() {
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = true;
    do {
      this.again = false;
      try {
        const found = await this.load(this.stop.signal);
        if (!this.stop.signal.aborted && !this.again) this.show(found);
      } catch (error) {
        if (!this.stop.signal.aborted) this.fail(error);
      }
    } while (this.again && !this.stop.signal.aborted);
    this.running = false;
  }

  close() {
    this.stop.abort();
  }
}
