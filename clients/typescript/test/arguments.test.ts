/** What a caller may write wrongly: each is refused with words, where it is written, and never as an error of the platform. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { ApiAnswer, createOAuth, createRuntime } from "../src/index.js";
import { KEY, READY, refuses, says, TURN_TOKEN, withFake } from "./kit.js";

for (const timeoutMs of [2 ** 31, 86_400_001, Infinity, NaN, -1, "60", [5]] as number[]) {
  test(`a timeout that no timer keeps is refused where the client is made: ${inspect(timeoutMs)}`, () => {
    const made = [() => createOAuth({ baseUrl: "https://x", turnToken: TURN_TOKEN, timeoutMs }), () => createRuntime({ baseUrl: "https://x", timeoutMs })];
    for (const make of made) assert.throws(make, { name: "BrokerError", code: "configInvalid", message: /^timeoutMs is a number of milliseconds from 0 to 86400000/ });
  });
}
for (const timeoutMs of [86_400_000, 9_999.5]) {
  test(`a timeout is kept: ${timeoutMs}`, () => 
    withFake([says(200, READY)], async ({ url: baseUrl }) => {
      const oauth = createOAuth({ baseUrl, turnToken: TURN_TOKEN, timeoutMs });
      assert.equal((await oauth.getAccessToken({ oauthAppRef: "mail" })).status, "ready");
    }));
}

for (const odd of [undefined, null, NaN, -1, Infinity, 5, "5", true, [], {}] as never[]) {
  test(`a call refuses what it cannot use as BrokerError, and never as an error of the platform: ${inspect(odd)}`, () =>
    withFake([refuses(400, "requestInvalid")], async (fake) => {
      const oauth = createOAuth({ baseUrl: fake.url, turnToken: TURN_TOKEN });
      const runtime = createRuntime({ baseUrl: fake.url, key: KEY });
      for (const answer of [await oauth.getAccessToken(odd), await oauth.reportRejected(odd), await oauth.fetch(odd, odd, odd)]) {
        assert(answer instanceof ApiAnswer === false && answer.status === "error");
        assert.equal(answer.error.code, "requestInvalid");
      }
      const calls = [
        () => oauth.relayCode(odd), () => runtime.beginTurn(odd), () => runtime.endTurn(odd), () => runtime.session(odd),
        () => runtime.cancel(odd), () => runtime.confirm(odd), () => runtime.connectionsLink(odd), () => runtime.revoke(odd),
        () => runtime.erase(odd), () => runtime.importGrants([odd], "key-1"),
      ];
      for (const call of calls) await assert.rejects(call, { name: "BrokerError", code: "requestInvalid" });
      if (typeof odd !== "object" || odd === null) await assert.rejects(oauth.narrow(odd), { name: "BrokerError", code: "requestInvalid" });
      await assert.rejects(oauth.narrow({ expiresAt: odd ?? 1 } as never), { name: "BrokerError", code: "requestInvalid" });
    }));
}

for (const odd of [null, NaN, -1, Infinity, "5", true] as never[]) {
  test(`a wait that is no number is refused unsent: ${inspect(odd)}`, () =>
    withFake([], async (fake) => {
      const runtime = createRuntime({ baseUrl: fake.url, key: KEY });
      const waits = [() => runtime.lease("planner", { waitSeconds: odd }), () => runtime.events("planner", { waitSeconds: odd }).next()];
      for (const wait of waits) await assert.rejects(wait, { code: "requestInvalid", message: /^A wait is a number of seconds.*waitSeconds/ });
      await assert.rejects(runtime.waitFor("as-1", { timeoutMs: odd }), { code: "requestInvalid", message: /^timeoutMs is a number/ });
      assert.equal(fake.asked.length, 0);
    }));
}
