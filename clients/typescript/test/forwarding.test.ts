/** A tool's request to a provider's API, through the broker. */

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { ApiAnswer, createOAuth, type FetchOptions, type OAuth } from "../src/index.js";
import { unixSocketFetch } from "../src/node.js";
import { type Answer, fakeBroker, hangsUp, refuses, says, TURN_TOKEN, withFake } from "./kit.js";

const URL_ = "https://API.acme.example/a%2Fb?c=d%20e#part";
const FORWARDED = { "oauthbroker-status": "forwarded" };
const LINK = { status: "authorization_required", authSessionId: "as-1", authorizationUrl: "https://broker.example/connect/x", message: "Please connect." };
const send = (baseUrl: string, method = "GET", url = URL_, options: FetchOptions = {}) =>
  createOAuth({ baseUrl, turnToken: TURN_TOKEN, timeoutMs: 10_000 }).fetch("OAuthApp/acme", method, url, options);

test("the request goes to the broker with the turn token", () =>
  withFake([says(201, [1], { ...FORWARDED, "x-own": "1" })], async (fake) => {
    const headers = { Authorization: "mine", "X-A": "2", accept: "text/csv", Content_Length: "9", Transfer_Encoding: "x" };
    const answer = await send(fake.url, "POST", URL_, { headers, content: '{"a":"é"}', scopes: ["read", "write"] });
    assert(answer instanceof ApiAnswer);
    assert.deepEqual([answer.status, answer.json(), answer.text(), answer.headers["x-own"]], [201, [1], "[1]", "1"]);
    const [asked] = fake.asked;
    assert.equal(asked?.line, "POST /v1/proxy/acme/api.acme.example/a%2Fb?c=d%20e");
    assert.equal(asked.headers.authorization, `Bearer ${TURN_TOKEN}`);
    assert.deepEqual([asked.headers["content_length"], asked.headers["transfer_encoding"]], [undefined, undefined]);
    assert.deepEqual([asked.headers["x-a"], asked.headers.accept, asked.headers["oauthbroker-scopes"]], ["2", "text/csv", "read write"]);
    assert.deepEqual([asked.body, asked.headers["content-type"]], [{ a: "é" }, undefined]);
  }));

test("HEAD, which has no body, finds its link among those of the turn, and is told a code in a header", async () => {
  const item = { authSessionId: "as-1", authorizationUrl: LINK.authorizationUrl, expiresAt: "2026-02-01T10:00:00Z", message: LINK.message };
  const asked = says(403, undefined, { "oauthbroker-status": "authorization_required", "oauthbroker-session": "as-1", "oauthbroker-reason": "noGrant" });
  const block = says(200, { type: "auth.pending", items: [{ ...item, authSessionId: "as-2" }, item] });
  await withFake([asked, block], async (fake) => {
    assert.deepEqual(await send(fake.url, "HEAD"), { status: "authorization_required", reason: "noGrant", ...item });
    assert.deepEqual(fake.asked.map((each) => each.line.split(" ")[0]), ["HEAD", "GET"]);
  });
  await withFake([says(403, undefined, { "oauthbroker-status": "error", "oauthbroker-code": "apiHostForbidden" })], async (fake) => {
    const refused = await send(fake.url, "HEAD");
    assert(refused.status === "error" && refused.error.code === "apiHostForbidden" && !refused.error.retryable);
  });
});

const REFS: [string, string | undefined][] = [
  ["OAuthApp/acme@work", "acme%40work"],
  ["CredentialApp/acme@work", "acme%40work"],
  ["CredentialApp/acme", "acme"],
  ["CredentialApp/", undefined],
  ["acme@a/b@c", "acme%40a%2Fb%40c"],
  ["OAuthApp/acme@", "acme%40"],
  ["OAuthApp/@work", undefined],
  ["Other/acme@work", undefined],
  ["a/b", undefined],
];
for (const [ref, part] of REFS) {
  test(`an app with an account goes into one segment of the path: ${ref}`, () =>
    withFake([says(200, "{}", FORWARDED)], async (fake) => {
      const answer = await createOAuth({ baseUrl: fake.url, turnToken: TURN_TOKEN, timeoutMs: 10_000 }).fetch(ref, "GET", "https://acme.example/");
      if (part === undefined) assert(answer.status === "error" && answer.error.code === "requestInvalid");
      assert.deepEqual(fake.asked.map((each) => each.line), part === undefined ? [] : [`GET /v1/proxy/${part}/acme.example/`]);
    }));
}

const WRONG: [string, Parameters<OAuth["fetch"]>, RegExp][] = [
  ["the URL before the method", ["acme", "https://a.example/", "GET"], /Send it before the URL.* \(\/method value\)$/],
  ["a path alone", ["acme", "GET", "/api/me"], /whole address.* \(\/url value\)$/],
  ["a step upwards", ["acme", "GET", "https://a.example/../x"], /whole address.* \(\/url value\)$/],
  ["no app", [null as never, "GET", URL_], /names no app.* \(\/oauthAppRef value\)$/],
  ["another kind", ["OauthApp/acme", "GET", URL_], /names no app.* \(\/oauthAppRef value\)$/],
  ["scopes that are a text", ["acme", "GET", URL_, { scopes: "read" as never }], /list of texts.* \(\/scopes type\)$/],
  ["a header of two lines", ["acme", "GET", URL_, { headers: { a: "1\n" } }], /header a cannot.* \(\/headers value\)$/],
  ["a header's name with a space", ["acme", "GET", URL_, { headers: { "a b": "1" } }], /name that cannot.* \(\/headers value\)$/],
];
for (const [why, args, message] of WRONG) {
  test(`a wrong argument is named with what it has to be: ${why}`, async () => {
    const answer = await createOAuth({ baseUrl: "http://127.0.0.1:9", turnToken: TURN_TOKEN, timeoutMs: 200 }).fetch(...args);
    assert(answer.status === "error");
    assert.equal(answer.error.code, "requestInvalid");
    assert.match(answer.error.message, message);
  });
}

test("bytes are sent and come back as they are", () =>
  withFake([(response) => response.writeHead(200, FORWARDED).end(Buffer.from([0xff, 0, 0x80]))], async (fake) => {
    const answer = await send(fake.url, "PUT", "https://api.acme.example:8443", { content: new TextEncoder().encode("[2]") });
    assert(answer instanceof ApiAnswer);
    assert.deepEqual([...answer.body], [0xff, 0, 0x80]);
    assert.deepEqual([fake.asked[0]?.line, fake.asked[0]?.body], ["PUT /v1/proxy/acme/api.acme.example%3A8443/", [2]]);
  }));

for (const status of [302, 401, 429, 503]) {
  test(`what the provider answers is an answer and no reason to try again: ${status}`, () =>
    withFake([says(status, "no", { ...FORWARDED, "retry-after": "1", location: "https://other.example/" })], async (fake) => {
      const answer = await send(fake.url);
      assert.deepEqual([answer.status, fake.asked.length], [status, 1]);
    }));
}

test("a request that may have been sent is not sent again", () =>
  withFake([hangsUp], async (fake) => {
    const failed = await send(fake.url, "POST");
    assert(failed.status === "error");
    assert.deepEqual([failed.error.code, fake.asked.length], ["brokerUnreachable", 1]);
  }));

test("a busy broker's 429 is tried again: nothing was sent on", () =>
  withFake([refuses(429, "rateLimited"), says(200, "{}", FORWARDED)], async (fake) => {
    assert.equal((await send(fake.url, "POST", URL_, { content: "{}" })).status, 200);
    assert.deepEqual(fake.asked.map((each) => each.body), [{}, {}]);
  }));

test("a user who has to consent is a result", () =>
  withFake([says(403, LINK, { "oauthbroker-status": "authorization_required" })], async (fake) => {
    const asked = await send(fake.url);
    assert(asked.status === "authorization_required");
    assert.equal(asked.authorizationUrl, LINK.authorizationUrl);
  }));

const notTheirs: Record<string, [Answer, string]> = {
  "an answer without the header": [says(200, {}), "brokerAnswerInvalid"],
  "no link in it": [says(403, {}), "brokerAnswerInvalid"],
  "another status of the broker": [says(404, "", { "oauthbroker-status": "error" }), "brokerAnswerInvalid"],
  "a refusal with a code": [refuses(403, "apiHostForbidden", { "oauthbroker-status": "error" }), "apiHostForbidden"],
  "an answer that is too long": [says(200, "x".repeat(4 * 1024 * 1024 + 1), FORWARDED), "brokerAnswerInvalid"],
};
for (const [why, [answer, code]] of Object.entries(notTheirs)) {
  test(`what is not the provider's answer is an error: ${why}`, () =>
    withFake([answer], async (fake) => {
      const failed = await send(fake.url);
      assert(failed.status === "error");
      assert.equal(failed.error.code, code);
    }));
}

const HERE = "https://api.acme.example/";
const refused: [string, string, FetchOptions?][] = [
  ["GET", `${HERE}../../../v1/turn/links`],
  ["GET", `${HERE}%2e%2E/x`],
  ["GET", `${HERE}a%2f..`],
  ["GET", `${HERE}a%5C.%2Fx`],
  ["GET", "https://user@api.acme.example/"],
  ["GET", "https://api.acme.example\\@evil.example/"],
  ["GET", "https://äpi.example/"],
  ["GET", "ftp://api.acme.example/"],
  ["GET", `${HERE} HTTP/1.1`],
  ["GET", `${HERE}a\tb`],
  ["GET", `${HERE}\n`],
  ["GET /", HERE],
  ["get", HERE],
  ["CONNECT", HERE],
  ["GET", HERE, { content: "{}" }],
  ["POST", HERE, { content: 5 as never }],
  ["GET", HERE, { headers: { "X-A": "1\r\nX-B: 2" } }],
  ["GET", HERE, { headers: { "X-A": "1\n" } }],
  ["GET", HERE, { headers: { "X A": "1" } }],
  ["GET", HERE, { headers: { "X-A": 1 as never } }],
  ["GET", HERE, { headers: { "X-A": "1", "x-a": "2" } }],
  ["GET", HERE, { headers: { Upgrade: "websocket" } }],
  ["GET", HERE, { headers: { Expect: "100-continue" } }],
  ["GET", HERE, { scopes: ["a\r\nb"] }],
  ["GET", 5 as never],
];
for (const [method, url, options] of refused) {
  test(`what cannot be sent as it stands is refused here: ${JSON.stringify([method, url, options])}`, () =>
    withFake([says(200, "", FORWARDED)], async (fake) => {
      const failed = await send(fake.url, method, url, options);
      assert(failed.status === "error");
      assert.deepEqual([failed.error.code, fake.asked], ["requestInvalid", []]);
    }));
}

test("the caller may leave", () =>
  withFake([() => undefined], async (fake) => {
    const leaving = new AbortController();
    const asked = send(fake.url, "GET", URL_, { signal: leaving.signal });
    setTimeout(() => leaving.abort(new Error("enough")), 50);
    await assert.rejects(asked, /enough/);
  }));

test("a Unix socket carries it, also answers that have no body", async () => {
  const folder = await mkdtemp(join(tmpdir(), "oauthbroker-"));
  const path = join(folder, "api.sock");
  const fake = await fakeBroker([says(200, [1], FORWARDED), says(205, undefined, FORWARDED), says(777, undefined, FORWARDED)], path);
  try {
    const oauth = createOAuth({ baseUrl: "http://localhost", fetch: unixSocketFetch(path), turnToken: TURN_TOKEN });
    const content = new TextEncoder().encode("[3]");
    assert.deepEqual([(await oauth.fetch("acme", "POST", HERE, { content })).status, fake.asked[0]?.body], [200, [3]]);
    assert.equal((await oauth.fetch("acme", "GET", HERE)).status, 205);
    assert.equal((await oauth.fetch("acme", "GET", HERE)).status, "error"); // no status that a Response can have
  } finally {
    await fake.close();
    await rm(folder, { recursive: true });
  }
});

test("nothing of an answer but its status is in what Node prints", () => {
  const answer = new ApiAnswer(200, { "x-own": "canary" }, new TextEncoder().encode("canary"));
  assert.equal(inspect(answer, { depth: 10 }), "ApiAnswer { status: 200 }");
});
