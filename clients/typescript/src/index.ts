/** Tokens for tools, turns for runtimes: docs/clients.md. */

export { BrokerError, type RequestError } from "./errors.js";
export { ApiAnswer, type FetchOptions, type FetchResult } from "./forwarding.js";
export { narrow, type Narrowing } from "./narrow.js";
export { createOAuth, createOAuthFromEnv, type OAuth, type OAuthOptions } from "./oauth.js";
export {
  type BeginTurn,
  createRuntime,
  createRuntimeFromEnv,
  type Delivery,
  type RunningTurn,
  type Runtime,
  type RuntimeOptions,
} from "./runtime.js";
export type * from "./types.js";
export type { CallOptions, ClientOptions, Fetch } from "./wire.js";
