/** The forms in which a call takes an app: `OAuthApp/name`, the bare name, or kind and name. */

import { BrokerError } from "./errors.js";
import type { ObjectRefLike } from "./types.js";

/** The app's bare name. Throws `requestInvalid` for what names no OAuthApp. */
export function appName(ref: ObjectRefLike): string {
  const [, name = ""] = typeof ref === "string" ? (/^(?:OAuthApp\/)?([^/]+)$/.exec(ref) ?? []) : ["", named(ref)];
  if (name === "") throw new BrokerError("requestInvalid");
  return name;
}

function named(ref: unknown): string {
  const { kind = "OAuthApp", name, ...more } = Object(ref) as Record<string, unknown>;
  const known = Object.keys(more).every((member) => member === "apiVersion");
  return kind === "OAuthApp" && typeof name === "string" && known ? name : "";
}
