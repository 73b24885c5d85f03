// Asks the API of this port. Where it needs a token, the page asks for one, and keeps it for this tab only.

const KEY = "xdsprism.token";
let token = sessionStorage.getItem(KEY) || "";
let asking = null;
let ask = async () => "";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Say how to ask for a token: a function that gets what was wrong with the last one, and returns a promise of one. */
export function askWith(function_) {
  ask = function_;
}

export function hasToken() {
  return token !== "";
}

export function forgetToken() {
  token = "";
  sessionStorage.removeItem(KEY);
}

/** Send a request with the token, if there is one; ask for a token until it is accepted. */
export async function request(path, { query = {}, signal, headers = {} } = {}) {
  const text = query instanceof URLSearchParams ? query.toString() : new URLSearchParams(query).toString();
  for (;;) {
    const sent = token;
    const own = sent ? { authorization: `Bearer ${sent}` } : {};
    const answer = await fetch(text ? `${path}?${text}` : path, {
      headers: { ...headers, ...own },
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
    if (answer.status !== 401) return answer;
    if (token !== sent) continue; // somebody else has asked meanwhile
    await newToken(sent ? "This token is not accepted." : "");
  }
}

async function newToken(wrong) {
  asking = asking || ask(wrong).then((given) => {
    token = given;
    sessionStorage.setItem(KEY, given);
  }).finally(() => {
    asking = null;
  });
  await asking;
}

/** Return the JSON of a page of the API. Throws an ApiError with the server's own text. */
export async function get(path, query = {}, signal = undefined) {
  const answer = await request(path, { query, signal });
  const type = answer.headers.get("content-type") || "";
  const body = type.startsWith("application/json") ? await answer.json() : null;
  if (!answer.ok || body === null) throw new ApiError(answer.status, (body && body.error) || `status ${answer.status}`);
  return body;
}

/** Follow server-sent events: EventSource can't send a token. `take` gets {id, event, data} of each; returns at the end. */
export async function follow(path, { after = "", signal, take, opened = () => {} }) {
  const headers = { accept: "text/event-stream", ...(after ? { "last-event-id": after } : {}) };
  const answer = await request(path, { signal, headers });
  if (!answer.ok || !answer.body) throw new ApiError(answer.status, `status ${answer.status}`);
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { id: "", event: "message", data: [] };
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const each of lines) {
      const line = each.endsWith("\r") ? each.slice(0, -1) : each;
      if (line === "") {
        if (event.data.length) take({ ...event, data: event.data.join("\n") });
        event = { id: "", event: "message", data: [] };
        continue;
      }
      const at = line.indexOf(":");
      if (at === 0) continue; // a comment, which keeps the connection alive
      const field = at < 0 ? line : line.slice(0, at);
      const text = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
      if (field === "data") event.data.push(text);
      else if (field === "id" || field === "event") event[field] = text;
    }
  }
}
