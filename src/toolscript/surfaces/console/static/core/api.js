// Requests to the gateway: credentials, errors, and what happens while it does not answer.
import { createStore } from "./store.js";

const KEY = "toolscript.key";
const TOKEN = "toolscript.token";
const BY_LINK = "toolscript.by-link";
const RETRY_MS = 1000;

/** "ok", or "gone" while the gateway does not answer. */
export const connection = createStore("ok");
/** Grows when everything shown should be read again: after signing in or out, and when the gateway is back. */
export const epoch = createStore(0);
/** The error that asks for a key, or null. */
export const signInNeeded = createStore(null);
/** Names of the credentials in use. */
export const credentials = createStore(readCredentials());

export class ApiError extends Error {
  constructor(status, code, message, details = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }
}

function readCredentials() {
  try {
    return { key: sessionStorage.getItem(KEY) ?? "", token: sessionStorage.getItem(TOKEN) ?? "", isByLink: Boolean(sessionStorage.getItem(BY_LINK)) };
  } catch {
    return { key: "", token: "", isByLink: false };
  }
}

/** Keeps the credentials for as long as the tab is open. */
export function signIn({ key = "", token = "", isByLink = false }) {
  try {
    for (const [name, value] of [[KEY, key], [TOKEN, token], [BY_LINK, isByLink ? "yes" : ""]]) {
      if (value) sessionStorage.setItem(name, value);
      else sessionStorage.removeItem(name);
    }
  } catch { /* storage is not allowed: they last until the page is left */ }
  credentials.set({ key, token, isByLink });
  signInNeeded.set(null);
  epoch.set(epoch.get() + 1);
}

/** Signs in with the code of a link of `toolscript open`. */
export async function signInByLink(code) {
  try {
    signIn({ ...(await ask("POST", "/api/v1/sign-in", { body: { code } })), isByLink: true });
  } catch (error) {
    signInNeeded.set(error);
  }
}

function credentialHeaders() {
  const { key, token } = credentials.get();
  const headers = {};
  if (key) headers["X-API-Key"] = key;
  if (key || token) headers.Authorization = `Bearer ${token || key}`;
  return headers;
}

/** Sends a request and returns the response. Throws ApiError, and AbortError when it was cancelled. */
export async function send(method, path, { body, signal, headers = {} } = {}) {
  const isForm = body instanceof FormData;
  const options = { method, signal, headers: { ...credentialHeaders(), ...headers }, cache: "no-store" };
  if (body !== undefined) {
    options.body = isForm ? body : JSON.stringify(body);
    if (!isForm) options.headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    markGone();
    throw new ApiError(0, "UNREACHABLE", "The gateway does not answer.");
  }
  if (response.ok) return response;
  if (response.status === 401 && credentials.get().isByLink) {  // the gateway was started again, or half a day has passed
    signIn({});
    return send(method, path, { body, signal, headers });
  }
  throw await readError(response);
}

/** Sends a request and returns the JSON of its response. */
export async function ask(method, path, options) {
  return (await send(method, path, options)).json();
}

async function readError(response) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch { /* a proxy answered */ }
  const message = error.message ?? `The gateway answered with status ${response.status}.`;
  const found = new ApiError(response.status, error.code ?? "UNKNOWN", message, error.details);
  const isDocuments = /^document routes/.test(message);
  if (response.status === 401 && !isDocuments) signInNeeded.set(found);
  return found;
}

function markGone() {
  if (connection.get() === "gone") return;
  connection.set("gone");
  const timer = setInterval(async () => {
    try {
      if (!(await fetch("/health", { cache: "no-store" })).ok) return;
    } catch {
      return;
    }
    clearInterval(timer);
    connection.set("ok");
    epoch.set(epoch.get() + 1);
  }, RETRY_MS);
}
