/** For Node alone: a person's own connection, which `oauthbroker login` made on this machine. */

import { execFile } from "node:child_process";
import { BrokerError } from "./errors.js";
import { isObject } from "./wire.js";

export interface LocalTokenOptions {
  scopes?: readonly string[];
  /** Seconds that the token must still be valid. */
  minTtlSeconds?: number;
  signal?: AbortSignal;
}

const SECONDS = 60;
const MOST_BYTES = 1024 * 1024;

/**
 * An access token that works now, from `oauthbroker token APP`: `github`, or `github@work` for one of several accounts.
 * Ask again where it is needed: nothing is kept here, and the broker refreshes it. In the process of a tool with a turn
 * it is that turn's.
 *
 * Throws BrokerError: `grantNotFound` where the person has to log in first, `authorizationRequired` in a turn,
 * `programNotFound` where oauthbroker is not installed. No message holds the token.
 */
export async function localToken(app: string, options: LocalTokenOptions = {}): Promise<string> {
  const scopes = (options.scopes ?? []).map((scope) => `--scope=${scope}`);
  const { minTtlSeconds } = options;
  if (minTtlSeconds !== undefined && !Number.isInteger(minTtlSeconds)) throw refusal("requestInvalid", "minTtlSeconds is a whole number of seconds. Send one such as 60.");
  const ttl = minTtlSeconds === undefined ? [] : [`--min-ttl=${minTtlSeconds}`];
  const said = await printed(["token", "--json", ...scopes, ...ttl, "--", app], options.signal);
  if (typeof said["accessToken"] === "string") return said["accessToken"];
  if (said["status"] === "authorization_required") throw refusal("authorizationRequired", said["message"]);
  const error = isObject(said["error"]) ? said["error"] : {};
  throw refusal(typeof error["code"] === "string" ? error["code"] : "brokerAnswerInvalid", error["message"]);
}

/** The one JSON document of a command, whether it succeeded or not. No shell reads the words. */
function printed(words: string[], signal: AbortSignal | undefined): Promise<Record<string, unknown>> {
  const settings = { encoding: "utf8", timeout: SECONDS * 1000, maxBuffer: MOST_BYTES, ...(signal ? { signal } : {}) } as const;
  return new Promise((resolve, reject) => {
    execFile("oauthbroker", words, settings, (error, stdout) => {
      if (signal?.aborted) return reject(signal.reason as Error);
      if (error?.code === "ENOENT") {
        return reject(refusal("programNotFound", "There is no program oauthbroker on PATH. Install it, then run: oauthbroker login"));
      }
      resolve(document(stdout));
    });
  });
}

/** Not the error of a failed parse, which quotes the text. */
function document(stdout: string): Record<string, unknown> {
  try {
    const said: unknown = JSON.parse(stdout);
    if (isObject(said)) return said;
  } catch {
    // as below
  }
  return { error: { code: "brokerAnswerInvalid" } };
}

function refusal(code: string, message: unknown): BrokerError {
  return new BrokerError(code, typeof message === "string" ? { message } : {});
}
