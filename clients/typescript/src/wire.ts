/** One request and its tries: a deadline for all of them, a size cap, no redirects. Needs fetch and AbortSignal only. */

import { BrokerError, isAmount, type RequestError, wrongArgument, wrongOption } from "./errors.js";
import type { Locale } from "./types.js";
import { VERSION } from "./version.js";

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** How to reach the broker. */
export interface ClientOptions {
  /** `https://...`, or `http://` on this machine. */
  baseUrl: string;
  /** For a call with all its tries, at most a day; 60 s, since a refresh waits for a provider. */
  timeoutMs?: number;
  /** The language of errors where the turn has none; English without it. */
  locale?: Locale;
  /** A weakening: lets `http://` show tokens to the network between two machines. */
  plainHttp?: boolean;
  /** Another fetch, for instance `unixSocketFetch` of `@oauthbroker/client/node`. */
  fetch?: Fetch;
}

/** What one call may be told. */
export interface CallOptions {
  signal?: AbortSignal;
}

export interface Call {
  method: string;
  path: string;
  body?: unknown;
  /** The body of a request to forward, as it stands. */
  content?: Uint8Array<ArrayBuffer> | undefined;
  /** Those of a request to forward, with lower-case names. */
  headers?: Record<string, string>;
  bearer?: string | undefined;
  /** Doing it twice does no more than once. */
  repeatable?: boolean;
  /** What the broker may wait on purpose. */
  patienceMs?: number;
  signal?: AbortSignal | undefined;
  /** Of the turn that calls. */
  locale?: Locale | undefined;
}

/** A whole answer. `json` is undefined for another media type. `forwarded`: it is a provider's, as it came. */
export interface Reply {
  status: number;
  json: unknown;
  forwarded?: { headers: Record<string, string>; body: Uint8Array } | undefined;
  /** Of the proxy's own answers, which have no body after HEAD: the code of a refusal, and the session of a request for consent. */
  proxy?: { code: string | null; session: string | null; reason: string | null } | undefined;
  retryAfterSeconds: number | undefined;
}

const AGENT = `oauthbroker-client-typescript/${VERSION}`; // a browser sends its own
const MAX_TIMEOUT_MS = 86_400_000; // a timer of the platform holds 24 days
const MAX_WAIT_SECONDS = 3600;
const PAUSES_MS = [100, 400, 1600];
const PASSING = new Set([408, 429, 502, 503, 504]);
const MAX_ERRORS = 16;
const MAX_BYTES = 4 * 1024 * 1024;
const BEARER = /^[A-Za-z0-9._~+/=-]{1,8192}$/;
const NOT_SENT = new Set(["ECONNREFUSED", "ENOENT", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);
const JSON_TYPES = new Set(["application/json", "application/problem+json"]);

export class Wire {
  readonly #base: string;
  readonly #timeoutMs: number;
  readonly locale: Locale | undefined;
  readonly #fetch: Fetch;

  constructor(options: ClientOptions) {
    this.#base = checkedBase(options.baseUrl, options.plainHttp ?? false);
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    if (!isAmount(this.#timeoutMs, MAX_TIMEOUT_MS)) {
      throw wrongOption(`timeoutMs is a number of milliseconds from 0 to ${MAX_TIMEOUT_MS}, such as 60000`);
    }
    this.locale = options.locale;
    this.#fetch = options.fetch ?? ((url, init) => fetch(url, init));
  }

  /** The answer, if it has one of these statuses or is a provider's. Throws BrokerError, or the reason of an aborted `signal`. */
  async send(call: Call, ...statuses: number[]): Promise<Reply> {
    const deadline = Date.now() + this.#timeoutMs + (call.patienceMs ?? 0);
    const repeatable = call.repeatable ?? true;
    const body = call.content ?? ("body" in call ? written(call.body) : undefined);
    for (let tried = 0; ; tried += 1) {
      const got = await this.#try(call, body, deadline - Date.now());
      const again = "lost" in got ? repeatable || !got.sent : mayPass(got, repeatable);
      const pause = again ? PAUSES_MS[tried] : undefined;
      const asked = "lost" in got ? 0 : (got.retryAfterSeconds ?? 0) * 1000;
      const wait = pause === undefined ? Infinity : Math.max(pause * (0.5 + Math.random()), asked);
      if (Date.now() + wait < deadline) {
        await sleep(wait, call.signal);
        continue;
      }
      if ("lost" in got) throw got.lost;
      if (got.forwarded === undefined && !statuses.includes(got.status)) throw refusalOf(got);
      return got;
    }
  }

  async #try(call: Call, body: Call["content"] | string, leftMs: number): Promise<Reply | { lost: BrokerError; sent: boolean }> {
    call.signal?.throwIfAborted();
    const late = AbortSignal.timeout(Math.ceil(Math.max(leftMs, 0)));
    const signal = call.signal === undefined ? late : AbortSignal.any([late, call.signal]);
    let sent = true;
    try {
      const language = call.locale ?? this.locale ?? "*";
      const own = { "user-agent": AGENT, accept: "application/json", "accept-language": language };
      const headers: Record<string, string> = { ...own, ...call.headers };
      if (call.bearer !== undefined) headers["authorization"] = `Bearer ${call.bearer}`;
      if (typeof body === "string") headers["content-type"] = "application/json";
      const init: RequestInit = { method: call.method, headers, redirect: "manual", signal, ...(body === undefined ? {} : { body }) };
      return await replyOf(await this.#fetch(this.#base + call.path, init));
    } catch (error) {
      call.signal?.throwIfAborted();
      if (error instanceof BrokerError) throw error;
      sent = !NOT_SENT.has(systemCodeOf(error));
    }
    return { lost: new BrokerError("brokerUnreachable", { address: this.#base }), sent };
  }
}

/** 429 was refused before any work. The answer of a provider is never a reason to try again. */
function mayPass(reply: Reply, repeatable: boolean): boolean {
  return reply.forwarded === undefined && (reply.status === 429 || (repeatable && PASSING.has(reply.status)));
}

/** Throws `requestInvalid` for no object, and for what JSON cannot say: a cycle, a bigint, NaN, an object whose own code throws. */
export function written(body: unknown): string {
  if (!isObject(body)) throw new BrokerError("requestInvalid");
  try {
    return String(JSON.stringify(body, sayable));
  } catch {
    throw wrongArgument("notJson");
  }
}

/** JSON.stringify would write null for it, which means a member that was left out. */
function sayable(_name: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError();
  return value;
}

/** A token or key as it may stand in a header. The error does not quote it. */
export function checkedBearer(text: string): string {
  if (typeof text === "string" && text !== text.trim()) {
    throw wrongOption("the token or key begins or ends with white space, such as a line break: remove it");
  }
  if (typeof text !== "string") throw wrongOption(`the token or key is a text, and this is ${typeof text}`);
  if (!BEARER.test(text)) throw wrongOption("this is no token or key of a broker");
  return text;
}

/** One segment of a path. */
export function part(text: string): string {
  if (typeof text !== "string" || text === "" || text === "." || text === "..") throw wrongArgument("emptyName");
  return encodeURIComponent(text);
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** RFC 9457 problems become the error they name; without one it is not the broker that answered. */
export function refusalOf(reply: Reply): BrokerError {
  const said = isObject(reply.json) ? reply.json : {};
  const { status, retryAfterSeconds } = reply;
  const code = said["code"] ?? reply.proxy?.code;
  if (typeof code !== "string") {
    return new BrokerError(PASSING.has(status) ? "brokerUnreachable" : "brokerAnswerInvalid", { status });
  }
  const message = typeof said["detail"] === "string" ? { message: said["detail"] } : {};
  const after = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
  const errors = errorsIn(said["errors"]);
  const retryable = said["retryable"] ?? (said["code"] === undefined && PASSING.has(status));
  return new BrokerError(code, { ...message, ...after, status, errors, retryable: retryable === true });
}

function errorsIn(listed: unknown): RequestError[] {
  const pairs = Array.isArray(listed) ? listed.filter(isObject).slice(0, MAX_ERRORS) : [];
  return pairs.flatMap(({ pointer, problem }) =>
    typeof pointer === "string" && typeof problem === "string" ? [{ pointer, problem }] : [],
  );
}

async function replyOf(response: Response): Promise<Reply> {
  const { status, headers } = response;
  const media = (headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  const body = await bytesOf(response);
  const after = headers.get("retry-after") ?? "";
  const retryAfterSeconds = /^\d{1,9}$/.test(after) ? Math.min(Number(after), MAX_WAIT_SECONDS) : undefined;
  if (headers.get("oauthbroker-status") === "forwarded") {
    return { status, json: undefined, retryAfterSeconds, forwarded: { headers: Object.fromEntries(headers), body } };
  }
  const [code, session, reason] = ["code", "session", "reason"].map((name) => headers.get(`oauthbroker-${name}`)) as [string | null, string | null, string | null];
  const proxy = headers.has("oauthbroker-status") ? { code, session, reason } : undefined;
  return { status, proxy, json: JSON_TYPES.has(media) ? parsed(new TextDecoder().decode(body)) : undefined, retryAfterSeconds };
}

async function bytesOf(response: Response): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  if (reader === undefined) return new Uint8Array();
  const pieces: Uint8Array[] = [];
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return joined(pieces, size);
    size += value.byteLength;
    if (size > MAX_BYTES) {
      await reader.cancel();
      throw new BrokerError("brokerAnswerInvalid", { status: response.status });
    }
    pieces.push(value);
  }
}

function joined(pieces: Uint8Array[], size: number): Uint8Array {
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.byteLength;
  }
  return whole;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** The members of a JSON object. Throws for anything else. */
export function membersOf(reply: Reply): Record<string, unknown> {
  if (!isObject(reply.json)) throw new BrokerError("brokerAnswerInvalid", { status: reply.status });
  return reply.json;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function checkedBase(baseUrl: string, plainHttp: boolean): string {
  let url: URL;
  try {
    url = new URL(baseUrl);
  } catch {
    throw wrongOption("baseUrl is https://host or http://127.0.0.1:port");
  }
  if (!["http:", "https:"].includes(url.protocol) || url.username || url.password || url.search || url.hash) {
    throw wrongOption("baseUrl is https://host or http://127.0.0.1:port, without user, query and fragment");
  }
  if (url.protocol === "http:" && !plainHttp && !isHere(url.hostname)) {
    throw wrongOption("http: to another machine shows tokens to the network: use https, or say plainHttp");
  }
  const path = url.pathname.replace(/\/+$/, "");
  if (path.endsWith("/v1")) throw wrongOption("leave /v1 out of baseUrl: the client adds it");
  return url.origin + path;
}

function isHere(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

/** undici keeps the system's word in the cause; node:http in the error itself. */
function systemCodeOf(error: unknown): string {
  for (const each of [error, isObject(error) || error instanceof Error ? (error as Error).cause : undefined]) {
    const code = typeof each === "object" && each !== null ? (each as { code?: unknown }).code : undefined;
    if (typeof code === "string") return code;
  }
  return "";
}
