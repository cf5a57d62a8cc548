/** Narrowing a turn token: no key, no request. Its holder can take rights away from it, and add none. */

import { BrokerError, wrongArgument } from "./errors.js";
import { appName } from "./refs.js";
import { isObject } from "./wire.js";

/** What the new token may at most; everything that is said has to hold. */
export interface Narrowing {
  /** `Tool/slack`: only what this tool was given or declares. */
  tool?: string;
  /** App -> scopes; null is all that are allowed so far. Apps that are not named are gone. */
  apps?: Record<string, readonly string[] | null>;
  /** Whole seconds. */
  expiresAt?: Date;
}

const MAX_CAVEATS = 16;
const MAX_LENGTH = 4096;
const TOKEN = /^oabt\.[A-Za-z0-9_-]{22}((?:\.[A-Za-z0-9_-]{2,4000})*)\.([A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])$/;

/** The narrower token. Throws BrokerError: `unauthenticated` for no turn token, `requestInvalid` for too many. */
export async function narrow(turnToken: string, to: Narrowing): Promise<string> {
  const found = turnToken.length <= MAX_LENGTH ? TOKEN.exec(turnToken) : null;
  if (found?.[1] === undefined || found[2] === undefined) throw new BrokerError("unauthenticated");
  let [kept, signature] = [turnToken.slice(0, turnToken.lastIndexOf(".")), bytesOf(found[2])];
  const caveats = caveatsOf(to);
  for (const caveat of caveats) {
    const text = base64url(new TextEncoder().encode(JSON.stringify(caveat)));
    signature = await signed(signature, text);
    kept = `${kept}.${text}`;
  }
  const made = `${kept}.${base64url(signature)}`;
  const count = found[1].split(".").length - 1 + caveats.length;
  if (count > MAX_CAVEATS || made.length > MAX_LENGTH) throw new BrokerError("requestInvalid", { message: "The turn token was narrowed too often. Narrow the turn's own token instead." });
  return made;
}

function caveatsOf(to: Narrowing): object[] {
  if (!isObject(to as unknown)) throw new BrokerError("requestInvalid");
  const seconds = to.expiresAt === undefined ? undefined : to.expiresAt instanceof Date ? Math.trunc(to.expiresAt.getTime() / 1000) : NaN;
  if (Number.isNaN(seconds)) throw new BrokerError("requestInvalid", { errors: [{ pointer: "/expiresAt", problem: "value" }] });
  return [
    ...(to.tool === undefined ? [] : [{ tool: to.tool }]),
    ...(to.apps === undefined ? [] : [{ apps: byName(to.apps) }]),
    ...(seconds === undefined ? [] : [{ exp: seconds }]),
  ];
}

/** Throws `requestInvalid` for what names no app and for an app that is named twice. */
function byName(apps: Required<Narrowing>["apps"]): Required<Narrowing>["apps"] {
  const named = new Map(Object.entries(apps).map(([ref, scopes]) => [appName(ref), scopes]));
  const areLists = [...named.values()].every((scopes: unknown) => scopes === null || Array.isArray(scopes));
  if (!areLists) throw wrongArgument("notScopes", "apps", "type");
  if (named.size !== Object.keys(apps).length) throw new BrokerError("requestInvalid", { message: "An app is named twice. Name each app once." });
  return Object.fromEntries(named);
}

async function signed(key: Uint8Array<ArrayBuffer>, text: string): Promise<Uint8Array<ArrayBuffer>> {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, new TextEncoder().encode(text)));
}

function base64url(bytes: Uint8Array): string {
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
}
