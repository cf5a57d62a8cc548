/** The request to a provider's API that the broker forwards, and its answer. */

import { BrokerError, wrongArgument } from "./errors.js";
import { callRef } from "./refs.js";
import type { AuthPendingBlock, OAuthTokenAuthorizationRequired, OAuthTokenError, ObjectRefLike } from "./types.js";
import { type Call, type CallOptions, isObject, part, refusalOf, type Reply } from "./wire.js";

/** What a request to a provider's API may have beside its method and URL. */
export interface FetchOptions extends CallOptions {
  headers?: Record<string, string>;
  /** The body; a text is sent as UTF-8. Name its type in `headers`. */
  content?: Uint8Array | string;
  /** A subset of the app's scopes. */
  scopes?: readonly string[];
}

/** The whole answer of a provider's API, with any status. `headers` have lower-case names. Node's console prints the status alone. */
export class ApiAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;

  constructor(status: number, headers: Readonly<Record<string, string>>, body: Uint8Array) {
    this.status = status;
    this.headers = headers;
    this.body = body;
    Object.defineProperty(this, Symbol.for("nodejs.util.inspect.custom"), { value: () => `ApiAnswer { status: ${status} }` });
  }

  /** The body as UTF-8. */
  text(): string {
    return new TextDecoder().decode(this.body);
  }

  /** The body as JSON. Throws SyntaxError. */
  json(): unknown {
    return JSON.parse(this.text()) as unknown;
  }
}

/** The provider's answer, or why there is none. */
export type FetchResult = ApiAnswer | OAuthTokenAuthorizationRequired | OAuthTokenError;

const ADDRESS = /^https?:\/\/([A-Za-z0-9.-]+(?::[0-9]{1,5})?)(\/[!-[\]-~]*)?$/;
const DOTS = /[/\\]\.\.?(?:[/\\;]|$)/;
const METHOD = /^(?!(?:CONNECT|TRACE|TRACK)$)[A-Z]{1,16}$/;
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t -~\x80-\xff]*$/;
const OURS = new Set(["authorization", "host", "content-length", "transfer-encoding", "connection", "accept-encoding"]);
const NEVER_SENT = new Set(["expect", "keep-alive", "upgrade"]); // the platform's fetch fails on them

/**
 * The call, not repeatable: the provider may have acted. Throws `requestInvalid` for a URL, method, header or body that
 * cannot be sent as it stands.
 */
export function forwarded(app: ObjectRefLike, method: string, url: string, options: FetchOptions): Call {
  if (!METHOD.test(method)) throw wrongArgument("forwardedMethod", "method");
  const [, host, rest = "/"] = (typeof url === "string" && ADDRESS.exec(url.replace(/#.*$/s, ""))) || [];
  if (host === undefined || DOTS.test(decoded(rest.replace(/\?.*$/, "")))) throw wrongArgument("forwardedUrl", "url");
  const content = contentOf(options.content);
  if (content !== undefined && ["GET", "HEAD"].includes(method)) throw new BrokerError("requestInvalid", { errors: [{ pointer: "/content", problem: "unknown" }] });
  const path = `/v1/proxy/${part(callRef(app))}/${part(host.toLowerCase())}${rest}`;
  if (options.scopes !== undefined && !Array.isArray(options.scopes)) throw wrongArgument("notScopes", "scopes", "type");
  const scopes = options.scopes === undefined ? {} : { "oauthbroker-scopes": options.scopes.join(" ") };
  const headers = checked({ ...options.headers, ...scopes });
  return { method, path, content, headers, repeatable: false, signal: options.signal };
}

/** The provider's answer or the request for consent. Throws the refusal of the broker. */
export function fetched(reply: Reply): FetchResult {
  if (reply.forwarded !== undefined) return new ApiAnswer(reply.status, reply.forwarded.headers, reply.forwarded.body);
  const { json } = reply;
  const isLink = isObject(json) && json["status"] === "authorization_required" && typeof json["authorizationUrl"] === "string";
  if (isLink) return json as unknown as OAuthTokenAuthorizationRequired;
  throw refusalOf(reply);
}

/** After HEAD: the request for consent whose link is among those of the turn, in `block`. Undefined for any other answer. */
export function askedByHead(reply: Reply): ((block: AuthPendingBlock | null) => OAuthTokenAuthorizationRequired) | undefined {
  const { session, reason } = reply.proxy ?? {};
  if (reply.json !== undefined || typeof session !== "string") return undefined;
  return (block) => {
    const item = block?.items.find((each) => each.authSessionId === session);
    if (item === undefined) throw new BrokerError("brokerAnswerInvalid", { status: reply.status });
    const { authorizationUrl = "", expiresAt, message, deviceCode } = item;
    const asked = { status: "authorization_required", authSessionId: session, authorizationUrl, expiresAt, message } as const;
    return { ...asked, ...(reason ? { reason } : {}), ...(deviceCode === undefined ? {} : { deviceCode }) };
  };
}

/** The separators of a path in clear. Each `%` is read once, as the broker does. */
function decoded(path: string): string {
  return path.replace(/%2e|%2f|%5c/gi, (coded) => String.fromCharCode(parseInt(coded.slice(1), 16)));
}

/** A copy that the caller cannot change between two tries. Undefined for an empty body. */
function contentOf(content: unknown): Uint8Array<ArrayBuffer> | undefined {
  if (content === undefined || content === "") return undefined;
  if (typeof content === "string") return new TextEncoder().encode(content);
  if (!(content instanceof Uint8Array)) throw new BrokerError("requestInvalid", { errors: [{ pointer: "/content", problem: "type" }] });
  return content.byteLength === 0 ? undefined : new Uint8Array(content);
}

/** The headers that a caller may choose. Throws `requestInvalid`. */
function checked(headers: Record<string, string>): Record<string, string> {
  const said = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const);
  const named = said.every(([name]) => NAME.test(name) && !NEVER_SENT.has(name));
  if (!named || new Set(said.map(([name]) => name)).size !== said.length) throw wrongArgument("forwardedHeaderName", "headers");
  const wrong = said.find(([, value]) => typeof value !== "string" || !VALUE.test(value));
  if (wrong !== undefined) throw wrongArgument("forwardedHeader", "headers", "value", wrong[0]);
  return Object.fromEntries(said.filter(([name]) => !OURS.has(name.replace(/[^a-z0-9]/g, "-")))); // servers read _ as -
}
