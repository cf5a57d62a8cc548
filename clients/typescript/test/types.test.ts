/** The specification's types, held by the compiler: a program that uses the result wrongly does not build. */

import type { OAuth, OAuthTokenRequest, OAuthTokenResult } from "../src/index.js";

type Report = Parameters<OAuth["reportRejected"]>[0];
type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/** Each branch has its fields, and none of the others'; no branch is left. */
export function told(result: OAuthTokenResult): string {
  switch (result.status) {
    case "ready":
      // @ts-expect-error a token that is ready has no link
      void result.authorizationUrl;
      return result.accessToken + result.tokenType + String(result.expiresAt) + result.scopes.join();
    case "authorization_required":
      // @ts-expect-error a link is no token
      void result.accessToken;
      return result.authSessionId + result.authorizationUrl + result.expiresAt + result.message;
    case "error":
      return result.error.code + result.error.message;
    default:
      return result satisfies never;
  }
}

/** As section 12.5.1 prints it. */
export async function specified(ctx: { oauth: OAuth }): Promise<OAuthTokenResult> {
  return ctx.oauth.getAccessToken({ oauthAppRef: { kind: "OAuthApp", name: "slack-bot" }, scopes: ["chat:write"], minTtlSeconds: 60 });
}

// @ts-expect-error nobody can name a subject
export const withSubject: OAuthTokenRequest = { oauthAppRef: "OAuthApp/x", subject: "slack:user:T111:U1" };
// @ts-expect-error an app has to be named
export const withoutApp: OAuthTokenRequest = { scopes: [] };
export const challenged: Report = { oauthAppRef: "OAuthApp/x", accessToken: "t", claims: "eyJh" };
// @ts-expect-error claims are the text of the challenge, as the API sent it
export const withObject: Report = { oauthAppRef: "OAuthApp/x", accessToken: "t", claims: { access_token: {} } };
export const statuses: Equal<OAuthTokenResult["status"], "ready" | "authorization_required" | "error"> = true;
