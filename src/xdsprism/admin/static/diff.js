// Compares two documents line by line, and draws the difference.

import { h } from "./dom.js";

const MOST = 1500; // differing lines that are compared exactly; beyond that, what differs is shown as one block
const AROUND = 3; // equal lines that are shown beside a difference

/** Write a document as lines, with sorted keys, so that equal documents have equal lines. */
export function lines(document_) {
  return JSON.stringify(sorted(document_), null, 2).split("\n");
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

/** Return the steps from one list of lines to another, each as [" ", "-" or "+", line]. */
export function compare(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const same = (line) => [" ", line];
  return [
    ...before.slice(0, start).map(same),
    ...middle(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...(end ? before.slice(-end).map(same) : []),
  ];
}

/** The shortest way from one list to another (Myers), for lists that are not too different. */
function middle(before, after) {
  const gone = (line) => ["-", line];
  const come = (line) => ["+", line];
  const most = Math.min(before.length + after.length, MOST);
  const trace = [];
  let reached = new Map([[1, 0]]);
  for (let depth = 0; depth <= most; depth += 1) {
    trace.push(new Map(reached));
    for (let k = -depth; k <= depth; k += 2) {
      const down = k === -depth || (k !== depth && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
      let x = down ? reached.get(k + 1) ?? 0 : (reached.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < before.length && y < after.length && before[x] === after[y]) {
        x += 1;
        y += 1;
      }
      reached.set(k, x);
      if (x >= before.length && y >= after.length) return back(before, after, trace, depth);
    }
  }
  return [...before.map(gone), ...after.map(come)];
}

function back(before, after, trace, depth) {
  const steps = [];
  let [x, y] = [before.length, after.length];
  for (let d = depth; d >= 0; d -= 1) {
    const reached = trace[d];
    const k = x - y;
    const down = k === -d || (k !== d && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const startX = d === 0 ? 0 : reached.get(from) ?? 0;
    const startY = d === 0 ? 0 : startX - from;
    while (x > startX && y > startY && before[x - 1] === after[y - 1]) {
      steps.push([" ", before[x - 1]]);
      x -= 1;
      y -= 1;
    }
    if (d === 0) break;
    if (down) {
      steps.push(["+", after[y - 1]]);
      y -= 1;
    } else {
      steps.push(["-", before[x - 1]]);
      x -= 1;
    }
  }
  return steps.reverse();
}

const WORDS = { "-": "removed", "+": "added" };

/** Draw steps; long runs of equal lines are folded. */
export function draw(steps) {
  const near = new Array(steps.length).fill(false);
  steps.forEach(([kind], at) => {
    if (kind === " ") return;
    for (let each = Math.max(0, at - AROUND); each <= Math.min(steps.length - 1, at + AROUND); each += 1) near[each] = true;
  });
  const rows = [];
  let hidden = 0;
  const fold = () => {
    if (hidden) rows.push(h("div", { class: "fold" }, `${hidden} equal line${hidden === 1 ? "" : "s"}`));
    hidden = 0;
  };
  steps.forEach(([kind, line], at) => {
    if (!near[at]) {
      hidden += 1;
      return;
    }
    fold();
    const mark = WORDS[kind] ? h("span", { class: "mark", "aria-label": WORDS[kind] }, kind) : h("span", { class: "mark" }, " ");
    rows.push(h("div", { class: kind === "-" ? "gone" : kind === "+" ? "come" : "same" }, mark, line));
  });
  fold();
  if (steps.every(([kind]) => kind === " ")) return h("p", { class: "muted" }, "Their contents are equal.");
  return h("div", { class: "diff", tabindex: "0", role: "region", "aria-label": "Difference", "data-scroll": "diff" }, rows);
}
