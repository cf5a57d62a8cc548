/** The forms in which a call takes an app: `OAuthApp/name`, `CredentialApp/name`, the bare name, or kind and name; in a call, `name@account`. */

import { wrongArgument } from "./errors.js";
import type { ObjectRefLike } from "./types.js";

/** The app's bare name. Throws `requestInvalid` for what names no app, and for `name@account`: only a call names one. */
export function appName(ref: ObjectRefLike): string {
  const name = callRef(ref);
  if (name.includes("@")) throw wrongArgument("appAlone", "oauthAppRef");
  return name;
}

/** What a call names: `name`, or `name@account`. Throws `requestInvalid` for what names no app. */
export function callRef(ref: ObjectRefLike): string {
  const [, name = ""] = typeof ref === "string" ? (/^(?:(?:OAuthApp|CredentialApp)\/)?([^/@]+(?:@[^]*)?)$/.exec(ref) ?? []) : ["", named(ref)];
  if (name === "") throw wrongArgument("appReference", "oauthAppRef");
  return name;
}

function named(ref: unknown): string {
  const { kind = "OAuthApp", name, ...more } = Object(ref) as Record<string, unknown>;
  const known = Object.keys(more).every((member) => member === "apiVersion");
  return (kind === "OAuthApp" || kind === "CredentialApp") && typeof name === "string" && known ? name : "";
}
