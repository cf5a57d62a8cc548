/** What the client does with a network and a broker that misbehave: every call ends in time, with an answer or a code. */

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { BrokerError, createOAuth, createOAuthFromEnv, createRuntime, createRuntimeFromEnv } from "../src/index.js";
import { unixSocketFetch } from "../src/node.js";
import { VERSION } from "../src/version.js";
import { type Answer, fakeBroker, hangsUp, KEY, READY, refuses, says, TURN_TOKEN, withFake } from "./kit.js";

const APP = { oauthAppRef: { kind: "OAuthApp", name: "mail" } };
const ask = (baseUrl: string, timeoutMs = 10_000) => createOAuth({ baseUrl, turnToken: TURN_TOKEN, timeoutMs }).getAccessToken(APP);

test("a token call is the specification's request with the turn token", () =>
  withFake([says(200, READY)], async (fake) => {
    const oauth = createOAuth({ baseUrl: `${fake.url}/`, turnToken: TURN_TOKEN });
    assert.deepEqual(await oauth.getAccessToken({ ...APP, scopes: ["read"], minTtlSeconds: 60 }), READY);
    const [asked] = fake.asked;
    assert.equal(asked?.line, "POST /v1/tokens");
    assert.equal(asked?.headers.authorization, `Bearer ${TURN_TOKEN}`);
    assert.deepEqual(asked?.body, { ...APP, scopes: ["read"], minTtlSeconds: 60 });
  }));

test("a request says which client of which version sent it, unless the caller of an API names another one", () =>
  withFake([says(200, READY), says(200, READY)], async (fake) => {
    await ask(fake.url);
    const oauth = createOAuth({ baseUrl: fake.url, turnToken: TURN_TOKEN });
    await oauth.fetch("mail", "GET", "https://api.example.com/", { headers: { "User-Agent": "mine/2" } });
    assert.deepEqual(fake.asked.map((each) => each.headers["user-agent"]), [`oauthbroker-client-typescript/${VERSION}`, "mine/2"]);
  }));

const passing: Record<string, Answer> = {
  "the broker is busy": refuses(503, "serverBusy"),
  "too many calls": refuses(429, "rateLimited", { "retry-after": "1" }),
  "a proxy before it": says(502, "<html>", { "content-type": "text/html" }),
  "a connection that broke": hangsUp,
};
for (const [why, answer] of Object.entries(passing)) {
  test(`a token call is tried again: ${why}`, () =>
    withFake([answer, says(200, READY)], async (fake) => {
      assert.equal((await ask(fake.url)).status, "ready");
      assert.equal(fake.asked.length, 2);
    }));
}

const final: Record<string, [Answer, string]> = {
  "a redirect is not followed": [says(307, undefined, { location: "http://127.0.0.1:1/" }), "brokerAnswerInvalid"],
  "not JSON": [says(200, "{"), "brokerAnswerInvalid"],
  "JSON of another kind": [says(200, [1]), "brokerAnswerInvalid"],
  "none of the three": [says(200, { status: "maybe" }), "brokerAnswerInvalid"],
  "ready without a token": [says(200, { ...READY, accessToken: null }), "brokerAnswerInvalid"],
  "not our API": [says(404, { detail: "Not Found" }), "brokerAnswerInvalid"],
  "an answer without end": [(response) => endless(response), "brokerAnswerInvalid"],
  "a turn that is over": [refuses(401, "turnEnded"), "turnEnded"],
  "a caller of the other kind": [refuses(403, "notAllowed"), "notAllowed"],
};
for (const [why, [answer, code]] of Object.entries(final)) {
  test(`what another try cannot fix is answered at once: ${why}`, () =>
    withFake([answer], async (fake) => {
      const failed = await ask(fake.url);
      assert(failed.status === "error");
      assert.deepEqual([failed.error.code, failed.error.retryable], [code, false]);
      assert.equal(fake.asked.length, 1);
    }));
}

const cycle: Record<string, unknown> = {};
cycle["self"] = cycle;
for (const [why, odd] of Object.entries({ "a cycle": cycle, "a bigint": { ...APP, minTtlSeconds: 5n }, "no number": { ...APP, minTtlSeconds: NaN }, "a getter that throws": { get name(): string { throw new Error("theirs"); } } })) {
  test(`what JSON cannot say is refused unsent and not tried again: ${why}`, () =>
    withFake([], async (fake) => {
      const oauth = createOAuth({ baseUrl: fake.url, turnToken: TURN_TOKEN });
      for (const answer of [await oauth.getAccessToken(odd as never), await oauth.reportRejected({ ...APP, accessToken: odd as never })]) {
        assert(answer.status === "error");
        assert.deepEqual([answer.error.code, answer.error.retryable], ["requestInvalid", false]);
      }
      assert.equal(fake.asked.length, 0);
    }));
}

function endless(response: Parameters<Answer>[0]): void {
  response.writeHead(200, { "content-type": "application/json" });
  const pour = (): void => {
    while (!response.destroyed && response.write(" ".repeat(65_536)));
  };
  response.on("drain", pour);
  pour();
}

const slow: Record<string, Answer> = {
  silence: () => undefined,
  drip: (response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const timer = setInterval(() => response.write(" "), 20);
    response.on("close", () => clearInterval(timer));
  },
};
for (const [how, answer] of Object.entries(slow)) {
  test(`a call ends at its deadline however slow the answer: ${how}`, () =>
    withFake([answer], async (fake) => {
      const failed = await ask(fake.url, 200);
      assert(failed.status === "error");
      assert.deepEqual([failed.error.code, failed.error.retryable], ["brokerUnreachable", true]);
    }));
}

test("waiting for a session goes on while the broker is away", () =>
  withFake([hangsUp, hangsUp, hangsUp, hangsUp, says(200, { authSessionId: "as-1", status: "completed" })], async (fake) => {
    const runtime = createRuntime({ baseUrl: fake.url, key: KEY });
    assert.equal((await runtime.waitFor("as-1", { timeoutMs: 20_000 })).status, "completed");
    assert.equal(fake.asked.length, 5);
  }));

test("waiting for a session ends with its own time, or with what waiting cannot fix", () =>
  withFake([hangsUp], async (fake) => {
    const runtime = createRuntime({ baseUrl: fake.url, key: KEY, timeoutMs: 100 });
    await assert.rejects(runtime.waitFor("as-1", { timeoutMs: 300 }), { code: "brokerUnreachable" });
    await withFake([refuses(401, "unauthenticated")], async (other) => {
      await assert.rejects(createRuntime({ baseUrl: other.url, key: KEY }).waitFor("as-1"), { code: "unauthenticated" });
    });
  }));

test("nobody there is an answer after a few tries", async () => {
  const fake = await fakeBroker([says(200)]);
  await fake.close();
  const failed = await ask(fake.url);
  assert(failed.status === "error");
  assert.deepEqual([failed.error.code, failed.error.retryable], ["brokerUnreachable", true]);
});

test("Retry-After that does not fit the deadline is told", () =>
  withFake([refuses(429, "rateLimited", { "retry-after": "600" })], async (fake) => {
    const failed = await ask(fake.url);
    assert(failed.status === "error");
    assert.equal(failed.error.retryAfterSeconds, 600);
    assert.equal(fake.asked.length, 1);
  }));

const once: Record<string, [Answer, number]> = {
  "a connection that broke after it was sent": [hangsUp, 1],
  "the store is busy": [refuses(503, "storeLocked"), 1],
  "too many calls: nothing was done": [refuses(429, "rateLimited"), 4],
};
for (const [why, [answer, times]] of Object.entries(once)) {
  test(`a turn is begun again only where surely nothing was begun: ${why}`, () =>
    withFake([answer], async (fake) => {
      const runtime = createRuntime({ baseUrl: fake.url, key: KEY });
      await assert.rejects(runtime.beginTurn({ turn: { agentName: "planner", instanceKey: "i" } }), BrokerError);
      assert.equal(fake.asked.length, times);
    }));
}

test("a caller may leave: the call rejects with its reason, and no other try follows", () =>
  withFake([slow["silence"] as Answer], async (fake) => {
    const leaving = new AbortController();
    const asked = createOAuth({ baseUrl: fake.url, turnToken: TURN_TOKEN }).getAccessToken(APP, { signal: leaving.signal });
    setTimeout(() => leaving.abort(new Error("enough")), 50);
    await assert.rejects(asked, /enough/);
    assert.equal(fake.asked.length, 1);
  }));

test("a Unix socket is reached through the Node entry", async () => {
  const folder = await mkdtemp(join(tmpdir(), "oauthbroker-"));
  const path = join(folder, "api.sock");
  const fake = await fakeBroker([says(200, READY), says(204)], path);
  try {
    const options = { baseUrl: "http://localhost", fetch: unixSocketFetch(path) };
    assert.equal((await createOAuth({ ...options, turnToken: TURN_TOKEN }).getAccessToken(APP)).status, "ready");
    await createRuntime(options).endTurn("turn-x");
    assert.deepEqual(fake.asked.map((each) => each.line), ["POST /v1/tokens", "DELETE /v1/turns/turn-x"]);
  } finally {
    await fake.close();
    await rm(folder, { recursive: true });
  }
});

test("a broker that wants a very long pause is asked again after an hour, not at once", () =>
  withFake([refuses(429, "rateLimited", { "retry-after": "999999999" })], async (fake) => {
    const error: unknown = await createRuntime({ baseUrl: fake.url, key: KEY }).apps().catch((thrown: unknown) => thrown);
    assert(error instanceof BrokerError);
    assert.deepEqual([error.retryAfterSeconds, fake.asked.length], [3600, 1]);
  }));

test("what is no safe address is refused", () => {
  for (const baseUrl of ["", "broker", "ftp://x", "http://broker.example:8420", "https://u:p@x", "http://127.0.0.1/?a=b"]) {
    assert.throws(() => createOAuth({ baseUrl, turnToken: TURN_TOKEN }), { name: "BrokerError", code: "configInvalid" }, baseUrl);
  }
  createOAuth({ baseUrl: "http://broker.example:8420", turnToken: TURN_TOKEN, plainHttp: true });
});

test("what cannot stand in a header is refused without being quoted", () => {
  for (const turnToken of ["", "sec ret", "a\r\nX: y", "x".repeat(10_000)]) {
    assert.throws(() => createOAuth({ baseUrl: "https://x", turnToken }), /^BrokerError: this is no token or key of a broker$/);
  }
});

test("white space around a token is named, as a file leaves it", () => {
  for (const turnToken of ["tok\n", " tok", "\t"]) {
    assert.throws(() => createOAuth({ baseUrl: "https://x", turnToken }), /^BrokerError: the token or key begins or ends with white space/);
  }
});

test("what the environment lacks is named", () => {
  const lacks = (name: string) => ({ name: "BrokerError", code: "configInvalid", message: new RegExp(`^${name} is not set: set it`) });
  assert.throws(() => createOAuthFromEnv({}), lacks("OAUTHBROKER_URL"));
  assert.throws(() => createRuntimeFromEnv({}), lacks("OAUTHBROKER_URL"));
  assert.throws(() => createOAuthFromEnv({ OAUTHBROKER_URL: "https://x" }), lacks("OAUTHBROKER_TURN_TOKEN"));
});

test("no token is in what Node prints of a result, a client or an error", () =>
  withFake([says(200, { ...READY, accessToken: "canary-access" }), refuses(401, "turnEnded")], async (fake) => {
    const turnToken = `oabt.${"l".repeat(22)}.${"canary".repeat(7)}A`;
    const oauth = createOAuth({ baseUrl: fake.url, turnToken });
    const ready = await oauth.getAccessToken(APP);
    const error: unknown = await oauth.apps().catch((caught: unknown) => caught);
    assert(error instanceof BrokerError);
    const printed = inspect([ready, oauth, error, createRuntime({ baseUrl: fake.url, key: turnToken })], { depth: 10, showHidden: true });
    assert(!printed.includes("canary"), printed);
    assert(ready.status === "ready" && ready.accessToken === "canary-access");
  }));

const locales = [["ko", "en", "ko"], ["ko", undefined, "ko"], [undefined, "ko", "ko"], [undefined, undefined, "en"]] as const;
const INVALID = { en: /^The answer does not come from a token broker/, ko: /브로커의 응답이 아닙니다/ };
for (const [ofTurn, ofClient, spoken] of locales) {
  test(`errors of a turn in ${ofTurn}, by a client in ${ofClient}, are in ${spoken}`, () => {
    const begun = { turnId: "turn-x", turnToken: TURN_TOKEN, toolTokens: {}, expiresAt: "2026-02-01T10:00:00Z" };
    return withFake([says(201, begun), says(200, {})], async ({ url: baseUrl, asked }) => {
      const locale = ofClient === undefined ? {} : { locale: ofClient };
      const turn = { agentName: "planner", instanceKey: "1", ...(ofTurn === undefined ? {} : { locale: ofTurn }) };
      const running = await createRuntime({ baseUrl, key: KEY, ...locale }).beginTurn({ turn });
      const env = { OAUTHBROKER_URL: baseUrl, OAUTHBROKER_TURN_TOKEN: TURN_TOKEN, OAUTHBROKER_LOCALE: spoken };
      const tool = await running.oauth();
      for (const oauth of [tool, await tool.narrow({ tool: "Tool/mail" }), createOAuthFromEnv(env)]) {
        const result = await oauth.getAccessToken(APP);
        assert(result.status === "error");
        assert.match(result.error.message, INVALID[spoken]);
        const error: unknown = await oauth.apps().catch((thrown: unknown) => thrown);
        assert(error instanceof BrokerError);
        assert.match(error.messageIn("ko"), INVALID.ko);
      }
      assert.equal(asked[1]?.headers["accept-language"], ofTurn ?? ofClient ?? "*");
    });
  });
}

test("a tool that the turn was not begun with gets no token", () => {
  const begun = { turnId: "turn-x", turnToken: TURN_TOKEN, toolTokens: { "Tool/mail": TURN_TOKEN }, expiresAt: "2026-02-01T10:00:00Z" };
  return withFake([says(201, begun)], async ({ url: baseUrl }) => {
    const turn = { agentName: "planner", instanceKey: "1" };
    const running = await createRuntime({ baseUrl, key: KEY }).beginTurn({ turn, tools: ["Tool/mail"] });
    assert.equal(await running.tokenFor("Tool/mail"), TURN_TOKEN);
    await assert.rejects(running.tokenFor("Tool/other"), { code: "requestInvalid", message: /^Tool\/other / });
    await assert.rejects(running.oauth("toString"), { code: "requestInvalid" });
  });
});

test("what the broker says of a refusal is passed on as it came", () =>
  withFake([says(401, { code: "turnEnded", detail: "Turn 이 종료되었습니다." }, { "content-type": "application/problem+json" })], async (fake) => {
    const result = await ask(fake.url);
    assert(result.status === "error");
    assert.equal(result.error.message, "Turn 이 종료되었습니다.");
  }));

test("a broker that cannot be reached is named by its address", async () => {
  const baseUrl = "http://127.0.0.1:9";
  const oauth = createOAuth({ baseUrl, turnToken: TURN_TOKEN, timeoutMs: 200 });
  const error: unknown = await oauth.apps().catch((thrown: unknown) => thrown);
  assert(error instanceof BrokerError);
  assert.deepEqual([error.code, error.address], ["brokerUnreachable", baseUrl]);
  assert.ok([error.message, error.messageIn("ko")].every((text) => text.endsWith(`(${baseUrl})`)));
});

test("a refused request says which of its members are wrong", () => {
  const errors = [{ pointer: "/turn/agentName", problem: "missing" }];
  const body = { code: "requestInvalid", detail: "No.", errors: [...errors, 3, { pointer: 1, problem: "type" }] };
  return withFake([says(400, body, { "content-type": "application/problem+json" })], async (fake) => {
    const runtime = createRuntime({ baseUrl: fake.url, key: KEY });
    const error: unknown = await runtime.beginTurn({ turn: { agentName: "a", instanceKey: "i" } }).catch((thrown: unknown) => thrown);
    assert(error instanceof BrokerError);
    assert.deepEqual([error.code, error.errors], ["requestInvalid", errors]);
    assert.equal(String(error), "BrokerError: No. (/turn/agentName missing)");
    assert.equal(error.messageIn("ko"), "No. (/turn/agentName missing)");
  });
});

test("the result of a refused request names its wrong members", () => {
  const body = { code: "requestInvalid", detail: "No.", errors: [{ pointer: "/scopes", problem: "type" }] };
  return withFake([says(400, body, { "content-type": "application/problem+json" })], async (fake) => {
    const oauth = createOAuth({ baseUrl: fake.url, turnToken: TURN_TOKEN });
    const result = await oauth.getAccessToken({ oauthAppRef: "mail", scopes: "read" as never });
    const error = { code: "requestInvalid", message: "No. (/scopes type)", retryable: false, errors: body.errors };
    assert.deepEqual(result, { status: "error", error });
  });
});

const unreadable: Record<string, [Answer, string]> = {
  "a broker that is away": [hangsUp, "brokerUnreachable"],
  "a store that cannot be read": [refuses(503, "storeUnavailable"), "storeUnavailable"],
  "a turn that is over": [refuses(401, "turnEnded"), "turnEnded"],
  "no block": [says(200, { type: "other" }), "brokerAnswerInvalid"],
};
for (const [why, [answer, code]] of Object.entries(unreadable)) {
  test(`a block that cannot be read is null and one warning: ${why}`, (context) =>
    withFake([answer], async (fake) => {
      const warned = context.mock.method(console, "warn", () => undefined);
      assert.equal(await createOAuth({ baseUrl: fake.url, turnToken: TURN_TOKEN }).pending(), null);
      assert.deepEqual(warned.mock.calls.map((call) => call.arguments), [[`an auth.pending block could not be read: ${code}`]]);
    }));
}

const MAIL = { kind: "OAuthApp", name: "mail" };
for (const app of ["mail", "OAuthApp/mail", "CredentialApp/mail", { kind: "CredentialApp", name: "mail" }, MAIL, { ...MAIL, apiVersion: "agents.example.io/v1alpha1" }]) {
  test(`an app is named in any form: ${JSON.stringify(app)}`, () =>
    withFake([says(200, { grants: [] })], async (fake) => {
      for await (const _ of createRuntime({ baseUrl: fake.url, key: KEY }).grants({ app, state: "live" }));
      assert.equal(fake.asked[0]?.line, "GET /v1/grants?app=mail&state=live");
    }));
}
for (const app of ["Tool/mail", "", "OAuthApp/", "CredentialApp/", { kind: "Tool", name: "mail" }, { ...MAIL, x: 1 }, 5, null]) {
  test(`what names no app lists no grants: ${JSON.stringify(app)}`, () =>
    withFake([says(200, { grants: [] })], async (fake) => {
      const asked = createRuntime({ baseUrl: fake.url, key: KEY }).grants({ app: app as never }).next();
      await assert.rejects(asked, { code: "requestInvalid" });
      assert.equal(fake.asked.length, 0);
    }));
}

test("a turn token is narrowed to apps in either form", async () => {
  const oauth = createOAuth({ baseUrl: "http://127.0.0.1:9", turnToken: TURN_TOKEN });
  const [bare, written] = await Promise.all([oauth.narrow({ apps: { mail: ["read"] } }), oauth.narrow({ apps: { "OAuthApp/mail": ["read"] } })]);
  assert.equal(bare.turnToken, written.turnToken);
  for (const apps of [{ mail: ["read"], "OAuthApp/mail": null }, { "Tool/mail": null }]) {
    await assert.rejects(oauth.narrow({ apps }), { code: "requestInvalid" });
  }
});
