// Makes elements. Text goes in as text, never as HTML: names and messages come from clients, and may look like HTML.

/**
 * Make an element. `attributes`: a function is a listener ("onclick"), false and null leave one out, true sets it empty.
 * Children are nodes, texts, lists of these, or null.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an element of SVG. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(String(child));
  }
}

/** Replace all that is in an element. The element that has the focus keeps it, if one with the same `data-key` is there. */
export function replace(element, ...children) {
  const active = document.activeElement;
  const key = active && element.contains(active) ? active.getAttribute("data-key") : null;
  const scrolled = [...element.querySelectorAll("[data-scroll]")].map((each) => [each.dataset.scroll, each.scrollLeft, each.scrollTop]);
  const fragment = document.createDocumentFragment();
  add(fragment, children);
  element.replaceChildren(fragment);
  for (const [name, left, top] of scrolled) {
    const same = [...element.querySelectorAll("[data-scroll]")].find((each) => each.dataset.scroll === name);
    if (same) same.scrollTo(left, top);
  }
  if (key !== null) {
    const same = [...element.querySelectorAll("[data-key]")].find((each) => each.getAttribute("data-key") === key);
    if (same) same.focus({ preventScroll: true });
  }
}
