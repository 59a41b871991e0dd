// What the server answers. Every refusal becomes an Error whose message is the server's own words.

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function answer(response) {
  const data = await response.json().catch(() => null);
  if (response.ok && data !== null) return data;
  throw new Refused(response.status, data?.error ?? `The server answered ${response.status}.`);
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, "The server cannot be reached. It ends with its run, unless `headway ui` serves the page.");
  }
  return answer(response);
}

export const get = (path, signal) => call(path, { signal });

export const post = (path, body = {}, signal) => call(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
});

export const run = (id) => `/api/runs/${encodeURIComponent(id)}`;
