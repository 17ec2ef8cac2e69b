// The HTTP API: one function per verb, and whether the broker answers.

import { plainWords } from "./terms.js";

const BASE = new URL("api/", document.baseURI);
let credential = null;

/** An answer that is no success. status: 0 if there was no answer at all. */
export class ApiError extends Error {
  constructor(status, error, reason) {
    super(typeof reason === "string" ? reason : JSON.stringify(reason));
    this.status = status;
    this.error = error;
  }
  /** Whether it says nothing of what was asked: the broker is not there, or just starts. */
  get isGone() { return this.status === 0 || this.status >= 502 || /the broker does not answer/.test(this.message); }
}

/** Whether the broker answers; dispatches "change" with detail {gone} and "unauthorised". */
export const health = new EventTarget();
let isGone = false;

export function setCredential(value) {
  credential = value;
}

/** path`queues/${vhost}/${name}`: whatever is in a name is one segment. ApiError for the two names that no URL can have. */
export function path(strings, ...values) {
  return String.raw({ raw: strings }, ...values.map(segment));
}

function segment(name) {
  if (name === "." || name === "..") {
    throw new ApiError(400, "not_addressable", `a browser cannot request an object named "${name}"; use the command line, leveret ctl`);
  }
  return encodeURIComponent(name);
}

/** An exchange in a path: the default one has a name there. */
export const exchangeName = (name) => (name === "" ? "amq.default" : name);

/** Options: query (object; null and undefined are left out), signal, headers. Answers with the JSON, or null without a body. */
export const get = (where, options) => request("GET", where, undefined, options);
export const put = (where, body, options) => request("PUT", where, body, options);
export const post = (where, body, options) => request("POST", where, body, options);
/** options.body: what a DELETE is about, where the API takes that. */
export const del = (where, { body, ...options } = {}) => request("DELETE", where, body, options);

async function request(method, where, body, { query = {}, signal, headers = {} } = {}) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  // "omit": without it browsers ask for a password themselves when the answer is 401
  const options = { method, signal, credentials: "omit", cache: "no-store", headers: { accept: "application/json", ...headers } };
  if (credential !== null) options.headers.authorization = `Basic ${credential}`;
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(url, options);
    const text = await answer.text();
    if (!answer.ok) throw refusal(answer.status, text);
    tell(false);
    return text === "" ? null : JSON.parse(text);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const told = error instanceof ApiError ? error : new ApiError(0, "unreachable", "no answer from the broker");
    tell(told.isGone);
    if (told.status === 401 && /^Login failed$/.test(told.message) && credential !== null) health.dispatchEvent(new Event("unauthorised"));
    throw told;
  }
}

function refusal(status, text) {
  try {
    const said = JSON.parse(text);
    return new ApiError(status, said.error, plain(said.reason ?? said.error));
  } catch {
    return new ApiError(status, "", `the broker answered ${status}`);
  }
}

/** In words. Reasons of refused policies come escaped for HTML, as RabbitMQ's; here nothing ever is HTML. */
function plain(reason) {
  return typeof reason === "string" ? plainWords(reason.replaceAll("&lt;", "<").replaceAll("&gt;", ">").trim()) : reason;
}

function tell(gone) {
  if (gone === isGone) return;
  isGone = gone;
  health.dispatchEvent(new CustomEvent("change", { detail: { gone } }));
}
