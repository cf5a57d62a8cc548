/** The tool's side: `ctx.oauth` for a tool in another process. It holds a turn token, and nothing else. */

import { BrokerError, knownLocale, wrongOption } from "./errors.js";
import { askedByHead, fetched, type FetchOptions, type FetchResult, forwarded } from "./forwarding.js";
import { narrow, type Narrowing } from "./narrow.js";
import type { AppInfo, AuthPendingBlock, Locale, OAuthTokenError, OAuthTokenRequest, OAuthTokenResult, ObjectRefLike, SessionOutcome } from "./types.js";
import { type Call, type CallOptions, checkedBearer, type ClientOptions, isObject, membersOf, type Reply, Wire } from "./wire.js";

/** A tool's way to tokens. `getAccessToken`, `reportRejected`, `fetch` and `pending` always answer; the other calls throw BrokerError. */
export interface OAuth {
  /** The specification's call (12.5.1): ready, authorization_required or error, never an exception but for `signal`. */
  getAccessToken(request: OAuthTokenRequest & { switchAccount?: boolean }, options?: CallOptions): Promise<OAuthTokenResult>;
  /** The provider's API answered 401 to this token: a newer one if there is or can be one, else as above. */
  reportRejected(
    report: { oauthAppRef: ObjectRefLike; accessToken: string; scopes?: readonly string[]; claims?: string },
    options?: CallOptions,
  ): Promise<OAuthTokenResult>;
  /**
   * Sends a request to the provider's API through the broker, which adds the token. Answers with the API's answer with
   * any status, or why there is none. An answer longer than 4 MiB is `brokerAnswerInvalid`.
   */
  fetch(app: ObjectRefLike, method: string, url: string, options?: FetchOptions): Promise<FetchResult>;
  /**
   * The `auth.pending` block of what this token may ask for; null when nothing waits. `apart` has no links in it. Null
   * too, and a warning on the console, where the block cannot be read: the turn goes on without it.
   */
  pending(options?: CallOptions & { links?: "inline" | "apart" }): Promise<AuthPendingBlock | null>;
  /** What the person sent back in the conversation (`channelCode`). Only with a turn's own token: else `notAllowed`. */
  relayCode(channelCode: string, options?: CallOptions): Promise<SessionOutcome>;
  /** The apps that this token may ask for. */
  apps(options?: CallOptions): Promise<AppInfo[]>;
  /** A client that may do less, for a sub-tool. Needs no request. */
  narrow(to: Narrowing): Promise<OAuth>;
  /** The token itself, to hand on to another process. Never log it. */
  readonly turnToken: string;
}

export interface OAuthOptions extends ClientOptions {
  turnToken: string;
}

/** `ctx.oauth` over HTTP. Throws BrokerError `configInvalid` for an invalid address, token or timeout. */
export function createOAuth(options: OAuthOptions): OAuth {
  return new TurnOAuth(new Wire(options), checkedBearer(options.turnToken));
}

/** The same from OAUTHBROKER_URL, OAUTHBROKER_TURN_TOKEN and OAUTHBROKER_LOCALE, where a runtime gave them to the tool's process. The error names the missing one. */
export function createOAuthFromEnv(env: Record<string, string | undefined> = environment()): OAuth {
  const locale = knownLocale(env["OAUTHBROKER_LOCALE"]);
  const named = { baseUrl: needed(env, "OAUTHBROKER_URL"), turnToken: needed(env, "OAUTHBROKER_TURN_TOKEN") };
  return createOAuth(locale === undefined ? named : { ...named, locale });
}

export class TurnOAuth implements OAuth {
  readonly #wire: Wire;
  readonly #token: string;
  readonly #locale: Locale | undefined;

  constructor(wire: Wire, token: string, locale: Locale | undefined = wire.locale) {
    this.#wire = wire;
    this.#token = token;
    this.#locale = locale;
  }

  get turnToken(): string {
    return this.#token;
  }

  async getAccessToken(request: OAuthTokenRequest & { switchAccount?: boolean }, options: CallOptions = {}): Promise<OAuthTokenResult> {
    return this.#ask("/v1/tokens", request, options);
  }

  async reportRejected(
    report: { oauthAppRef: ObjectRefLike; accessToken: string; scopes?: readonly string[]; claims?: string },
    options: CallOptions = {},
  ): Promise<OAuthTokenResult> {
    return this.#ask("/v1/tokens/rejected", report, options);
  }

  async fetch(app: ObjectRefLike, method: string, url: string, options: FetchOptions = {}): Promise<FetchResult> {
    try {
      const reply = await this.#send(forwarded(app, method, url, options), 403);
      const asked = askedByHead(reply);
      return asked === undefined ? fetched(reply) : asked(blockOf(await this.#send({ method: "GET", path: "/v1/turn/pending", signal: options.signal })));
    } catch (error) {
      if (error instanceof BrokerError) return failed(error, this.#locale ?? "en");
      throw error;
    }
  }

  async pending(options: CallOptions & { links?: "inline" | "apart" } = {}): Promise<AuthPendingBlock | null> {
    const { links = "inline", signal } = options;
    const path = links === "inline" ? "/v1/turn/pending" : "/v1/turn/pending?links=apart";
    try {
      return blockOf(await this.#send({ method: "GET", path, signal }));
    } catch (error) {
      if (!(error instanceof BrokerError)) throw error;
      console.warn(`an auth.pending block could not be read: ${error.code}`);
      return null;
    }
  }

  async relayCode(channelCode: string, options: CallOptions = {}): Promise<SessionOutcome> {
    const call = { method: "POST", path: "/v1/auth-sessions/confirm", body: { channelCode }, repeatable: false } as const;
    return membersOf(await this.#send({ ...call, signal: options.signal })) as unknown as SessionOutcome;
  }

  async apps(options: CallOptions = {}): Promise<AppInfo[]> {
    return listOf(await this.#send({ method: "GET", path: "/v1/apps", signal: options.signal }), "apps") as unknown as AppInfo[];
  }

  async narrow(to: Narrowing): Promise<OAuth> {
    return new TurnOAuth(this.#wire, await narrow(this.#token, to), this.#locale);
  }

  async #ask(path: string, body: unknown, options: CallOptions): Promise<OAuthTokenResult> {
    try {
      return resultOf(await this.#send({ method: "POST", path, body, signal: options.signal }));
    } catch (error) {
      if (error instanceof BrokerError) return failed(error, this.#locale ?? "en");
      throw error;
    }
  }

  #send(call: Call, status = 200): Promise<Reply> {
    return this.#wire.send({ ...call, bearer: this.#token, locale: this.#locale }, status);
  }
}

/** Null when nothing waits. */
function blockOf(reply: Reply): AuthPendingBlock | null {
  const block = membersOf(reply) as unknown as AuthPendingBlock;
  if (block.type !== "auth.pending" || !Array.isArray(block.items)) throw new BrokerError("brokerAnswerInvalid");
  return block.items.length === 0 ? null : block;
}

/** One of the three, checked as far as a tool relies on it. */
function resultOf(reply: Reply): OAuthTokenResult {
  const said = membersOf(reply);
  const { status } = said;
  if (status === "ready" && typeof said["accessToken"] === "string" && Array.isArray(said["scopes"])) return concealed(said);
  if (status === "authorization_required" && typeof said["authorizationUrl"] === "string") return said as unknown as OAuthTokenResult;
  if (status === "error" && isObject(said["error"]) && typeof said["error"]["code"] === "string") return said as unknown as OAuthTokenResult;
  throw new BrokerError("brokerAnswerInvalid", { status: reply.status });
}

/** A ready result that Node's console prints without its token. JSON.stringify still has it: never log that. */
function concealed(said: Record<string, unknown>): OAuthTokenResult {
  const print = (): object => ({ ...said, accessToken: "***" });
  return Object.defineProperty(said, Symbol.for("nodejs.util.inspect.custom"), { value: print }) as unknown as OAuthTokenResult;
}

function failed(error: BrokerError, locale: Locale): OAuthTokenError {
  const { code, retryable, retryAfterSeconds, errors } = error;
  const after = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
  return { status: "error", error: { code, message: error.messageIn(locale), retryable, ...after, ...(errors.length === 0 ? {} : { errors }) } };
}

/** The list of that name in an answer. */
export function listOf(reply: Reply, name: string): Record<string, unknown>[] {
  const found = membersOf(reply)[name];
  if (!Array.isArray(found) || !found.every(isObject)) throw new BrokerError("brokerAnswerInvalid", { status: reply.status });
  return found;
}

export function needed(env: Record<string, string | undefined>, name: string): string {
  const value = env[name];
  if (!value) throw wrongOption(`${name} is not set: set it where this process starts`);
  return value;
}

export function environment(): Record<string, string | undefined> {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};
}
