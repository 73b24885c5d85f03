// The frame: which view is shown, the keyboard, the colours, and the question for a token.

import { ApiError, askWith, forgetToken, hasToken } from "./api.js";
import { h, replace } from "./dom.js";
import { link } from "./format.js";
import { onOverview, overview, start } from "./live.js";
import { mount as mountCache } from "./view_cache.js";
import { mount as mountClient } from "./view_client.js";
import { mount as mountClients } from "./view_clients.js";
import { mount as mountEvents } from "./view_events.js";
import { mount as mountOverview } from "./view_overview.js";
import { mount as mountResource } from "./view_resource.js";
import { mount as mountResources } from "./view_resources.js";

const VIEWS = {
  "": mountOverview,
  resources: mountResources,
  resource: mountResource,
  clients: mountClients,
  client: mountClient,
  cache: mountCache,
  events: mountEvents,
};
const TABS = [
  ["", "Overview"],
  ["resources", "Resources"],
  ["clients", "Clients"],
  ["cache", "Cache"],
  ["events", "Events"],
];
const PARENTS = { resource: "resources", client: "clients" };
const KEYS = [
  ["1 … 5", "Overview, resources, clients, cache, events"],
  ["/", "Search, or type params"],
  ["j, k or ↓, ↑", "Next and previous link of a list"],
  ["Enter", "Open it"],
  ["[ and ]", "Previous and next page"],
  ["u", "Up: from a resource to all, from a client to all"],
  ["t", "Light or dark"],
  ["?", "This help"],
  ["Esc", "Leave a field, or close this"],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const dialog = document.getElementById("dialog");
const banner = document.getElementById("banner");
const live = document.getElementById("live");
const leave = document.getElementById("leave");
let shown = { close() {} };
let name = "";

// -- which view

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return [path, new URLSearchParams(query)];
}

function navigate() {
  const [path, query] = address();
  shown.close();
  name = path in VIEWS ? path : "";
  main.replaceChildren();
  const own = name;
  const write = (wanted) => history.replaceState(null, "", link(own, wanted));
  shown = VIEWS[name](main, query, write);
  document.title = `${shown.title} · xdsprism`;
  drawTabs();
  scrollTo(0, 0);
}

function drawTabs() {
  const current = PARENTS[name] || name;
  const tabs = TABS.filter(([view]) => view !== "cache" || (overview.now && overview.now.daemon === "relay"));
  replace(
    nav,
    tabs.map(([view, text]) => h("a", { href: link(view), "data-key": `tab-${view}`, "aria-current": current === view ? "page" : null }, text)),
  );
}

addEventListener("hashchange", navigate);

// -- is it up to date

let daemon = null;

function note() {
  leave.hidden = !hasToken();
  if (overview.error) {
    const { error } = overview;
    live.className = "live bad";
    live.textContent = "not connected";
    banner.hidden = false;
    banner.textContent = error instanceof ApiError ? error.message : "The server does not answer. This page goes on trying.";
    return;
  }
  banner.hidden = true;
  live.className = "live good";
  live.textContent = "live";
  live.title = `${overview.now.daemon} ${overview.now.version} (${overview.now.build})`;
  if (daemon !== overview.now.daemon) {
    daemon = overview.now.daemon;
    drawTabs();
  }
}

// -- light or dark

const THEMES = ["", "light", "dark"];
const THEME = "xdsprism.theme";

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  document.getElementById("theme").textContent = { "": "Auto", light: "Light", dark: "Dark" }[theme];
}

function changeTheme() {
  const now = document.documentElement.dataset.theme || "";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  localStorage.setItem(THEME, next);
  setTheme(next);
}

setTheme(THEMES.includes(localStorage.getItem(THEME)) ? localStorage.getItem(THEME) : "");
document.getElementById("theme").addEventListener("click", changeTheme);

// -- dialogs

function showKeys() {
  if (dialog.open) return;
  replace(
    dialog,
    h("h2", {}, "Keyboard"),
    h("dl", { class: "facts" }, KEYS.map(([key, text]) => h("div", {}, h("dt", {}, key.split(" ").map((part) => (/^(…|or|and)$/.test(part) ? ` ${part} ` : h("kbd", {}, part)))), h("dd", {}, text)))),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"),
  );
  dialog.showModal();
}

document.getElementById("keys").addEventListener("click", showKeys);

/** Ask for a token until one is typed. */
function askForToken(wrong) {
  return new Promise((resolve) => {
    const field = h("input", { type: "password", id: "token", "aria-label": "Token", autocomplete: "off", required: true });
    const form = h(
      "form",
      {},
      h("h2", {}, "This server needs a token"),
      h("p", { class: "muted" }, "It is in the file of --admin-token-file. This page keeps it until the tab is closed, and sends it to this server only."),
      wrong ? h("p", { class: "problem", role: "alert" }, wrong) : null,
      field,
      h("button", { type: "submit" }, "Use it"),
    );
    const keep = (event) => event.preventDefault(); // Esc does not get around it
    dialog.addEventListener("cancel", keep);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = field.value.trim();
      if (!given || /[^\x21-\x7e]/.test(given)) return;
      dialog.removeEventListener("cancel", keep);
      dialog.close();
      dialog.replaceChildren();
      resolve(given);
    });
    if (dialog.open) dialog.close();
    replace(dialog, form);
    dialog.showModal();
    field.focus();
  });
}

askWith(askForToken);
leave.addEventListener("click", () => {
  forgetToken();
  location.reload();
});

// -- keyboard

const ACTIONS = {
  "?": showKeys,
  t: changeTheme,
  "/": () => {
    if (shown.search) {
      shown.search.focus();
      shown.search.select();
    }
  },
  u: () => {
    if (name in PARENTS) location.hash = link(PARENTS[name]);
  },
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  "[": () => press("previous"),
  "]": () => press("next"),
};

function move(step) {
  const rows = [...main.querySelectorAll("td a[href]")];
  if (!rows.length) return false;
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

function press(key) {
  const button = main.querySelector(`button[data-key="${key}"]:not(:disabled)`);
  if (button) button.click();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key.startsWith("Arrow") && event.target instanceof Element && event.target.closest("[tabindex='0'], button")) return;
  const tab = Number(event.key);
  if (tab >= 1 && tab <= TABS.length) {
    location.hash = link(TABS[tab - 1][0]);
    return;
  }
  const action = ACTIONS[event.key];
  if (action && action() !== false) event.preventDefault();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

onOverview(note);
navigate();
start();
