/** The whole story against a real broker. `tests/e2e/test_typescript_client.py` starts it, and plays the person. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiAnswer, BrokerError, createOAuth, createRuntimeFromEnv } from "../src/index.js";

const { OAUTHBROKER_URL: baseUrl, PERSON_URL: person, PROVIDER_API_URL: api, KEYS_API_URL: keys } = process.env;
const skip = baseUrl === undefined || person === undefined ? "no broker: tests/e2e/test_typescript_client.py starts one" : false;
const MAIL = { kind: "OAuthApp", name: "mail" };
const TOOLS = { "Tool/mail": [{ oauthAppRef: MAIL, scopes: ["read", "write"] }] };
const AUTH = { actor: { type: "user", id: "chat:U234567" }, subjects: { user: "idp:user:U234567", global: "idp:team:T111" } };

let conversations = 0;
const turn = () => ({ agentName: "ts-planner", instanceKey: `1700000000.${(conversations += 1)}`, origin: { channel: "C1" }, auth: AUTH });

async function agree(link: string): Promise<void> {
  const answer = await fetch(String(person), { method: "POST", body: link });
  assert.equal(answer.status, 204);
}

test("from a link to a token that its API refused", { skip }, async () => {
  const runtime = createRuntimeFromEnv();
  const said = turn();
  const wanted = { oauthAppRef: MAIL, scopes: ["read"], minTtlSeconds: 60 };
  await runtime.withTurn({ turn: said, tools: TOOLS }, async (running) => {
    const tool = createOAuth({ baseUrl: String(baseUrl), turnToken: await running.tokenFor("Tool/mail") });
    assert.equal(await running.pending(), null);
    const asked = await tool.getAccessToken(wanted);
    assert(asked.status === "authorization_required", asked.status);
    const block = await running.pending();
    assert.equal(block?.items[0]?.authorizationUrl, asked.authorizationUrl);
    assert.deepEqual(block?.items[0]?.oauthAppRef, MAIL);
    assert.equal((await running.pending({ links: "apart" }))?.items[0]?.authorizationUrl, undefined);
    assert.equal((await runtime.session(asked.authSessionId)).status, "pending");
    await agree(asked.authorizationUrl);
    assert.equal((await runtime.waitFor(asked.authSessionId)).status, "completed");

    const events = runtime.events("ts-planner", { waitSeconds: 1 });
    const { value: delivery } = await events.next();
    assert(delivery !== undefined);
    assert.equal(delivery.event.eventId, `evt-${asked.authSessionId}-auth.granted`);
    assert.deepEqual([delivery.event.origin, delivery.event.auth, delivery.attempt], [said.origin, said.auth, 1]);
    assert.equal(await delivery.ack(), true);
    assert.equal(await delivery.ack(), true); // who did not hear the answer hears it again
    assert.equal(await delivery.nack(), false);
    await events.return();

    const ready = await tool.getAccessToken(wanted);
    assert(ready.status === "ready", ready.status);
    assert.deepEqual(ready.scopes, ["read"]);
    assert(Date.parse(String(ready.expiresAt)) > 0);
    const newer = await tool.reportRejected({ oauthAppRef: MAIL, accessToken: ready.accessToken, scopes: ["read"] });
    assert(newer.status === "ready", newer.status);
    assert.notEqual(newer.accessToken, ready.accessToken);

    const report = { oauthAppRef: MAIL, accessToken: newer.accessToken, scopes: ["read"] };
    const refused = await tool.reportRejected({ ...report, claims: "no base64" });
    assert(refused.status === "error" && refused.error.code === "requestInvalid", refused.status);
    const challenged = await tool.reportRejected({ ...report, claims: btoa('{"access_token":{"acrs":{"essential":true,"value":"c1"}}}') });
    assert(challenged.status === "authorization_required", challenged.status);
    await agree(challenged.authorizationUrl);
    const stronger = await tool.reportRejected({ ...report, claims: btoa('{"access_token":{"a":null}}') });
    assert(stronger.status === "ready" && stronger.accessToken !== newer.accessToken, "another token is there already");
  });
});

test("a request reaches the provider's API with a token that the tool never gets", { skip }, async () => {
  const user = { ...AUTH, subjects: { user: "idp:user:U234567" } };
  await createRuntimeFromEnv().withTurn({ turn: { ...turn(), auth: user }, tools: TOOLS }, async (running) => {
    const tool = await running.oauth("Tool/mail");
    const send = () => tool.fetch(MAIL, "POST", `${api}/messages?q=1`, { headers: { "X-Tool": "7" }, content: '{"a":1}', scopes: ["read"] });
    let answer = await send();
    if (answer.status === "authorization_required") {
      await agree(answer.authorizationUrl);
      answer = await send();
    }
    assert(answer instanceof ApiAnswer, JSON.stringify(answer));
    assert.deepEqual([answer.status, answer.json()], [201, { a: 1 }]);
    const other = await tool.fetch(MAIL, "GET", "https://other.example/");
    assert(other.status === "error" && other.error.code === "apiHostForbidden", JSON.stringify(other));
  });
});

test("a key that a person types reaches its API, and one that the API refuses is asked for again", { skip }, async () => {
  const meter = { kind: "CredentialApp", name: "meter" };
  const tools = { "Tool/metrics": [{ oauthAppRef: meter }] };
  await createRuntimeFromEnv().withTurn({ turn: turn(), tools }, async (running) => {
    const tool = await running.oauth("Tool/metrics");
    for (const reason of ["noGrant", "keyRejected"]) {
      const asked = await tool.fetch("CredentialApp/meter", "GET", `${keys}/data`);
      assert(asked.status === "authorization_required", JSON.stringify(asked));
      assert.equal(asked.reason, reason);
      assert.deepEqual((await running.pending())?.items[0]?.oauthAppRef, meter);
      await agree(asked.authorizationUrl);
      const answer = await tool.fetch(meter, "GET", `${keys}/data`);
      assert(answer instanceof ApiAnswer, JSON.stringify(answer));
      assert.deepEqual([answer.status, answer.json()], [200, { id: "U234567" }]);
      if (reason === "noGrant") await fetch(`${person}/rotate`, { method: "POST" });
    }
    const never = await tool.getAccessToken({ oauthAppRef: meter });
    assert(never.status === "error" && never.error.code === "requestInvalid", JSON.stringify(never));
  });
});

test("a sub-tool gets less, and nobody had to be asked", { skip }, async () => {
  const running = await createRuntimeFromEnv().beginTurn({ turn: turn(), tools: TOOLS });
  const tool = await running.oauth("Tool/mail");
  const reader = await tool.narrow({ apps: { mail: ["read"] } });
  const wanted = (scope: string) => ({ oauthAppRef: "OAuthApp/mail", scopes: [scope] });
  const refused = await reader.getAccessToken(wanted("write"));
  assert(refused.status === "error" && refused.error.code === "scopeNotAllowed", JSON.stringify(refused));
  const forbidden = await tool.getAccessToken({ oauthAppRef: "OAuthApp/files" });
  assert(forbidden.status === "error" && forbidden.error.code === "appForbidden", JSON.stringify(forbidden));
  assert.deepEqual((await reader.apps()).map((app) => [app.name, app.scopes]), [["mail", ["read"]]]);
  const never = await reader.narrow({ expiresAt: new Date(0) });
  const late = await never.getAccessToken(wanted("read"));
  assert(late.status === "error" && late.error.code === "turnEnded", JSON.stringify(late));
  await running.end();
  const over = await tool.getAccessToken(wanted("read"));
  assert(over.status === "error" && over.error.code === "turnEnded", JSON.stringify(over));
  await running.end();
});

test("links that leave the transcript, a request that is taken back, an event that is given back", { skip }, async () => {
  const runtime = createRuntimeFromEnv();
  await runtime.withTurn({ turn: turn(), tools: ["Tool/mail"], privateLinks: true }, async (running) => {
    const own = await running.oauth();
    const asked = await own.getAccessToken({ oauthAppRef: "OAuthApp/files" });
    assert(asked.status === "authorization_required", asked.status);
    assert.equal((await running.pending())?.items[0]?.authorizationUrl, undefined);
    const [link] = await running.links();
    assert.equal(link?.authSessionId, asked.authSessionId);
    assert.notEqual(link?.authorizationUrl, asked.authorizationUrl);
    assert.equal(await runtime.cancel(asked.authSessionId), true);
    assert.equal(await runtime.cancel(asked.authSessionId), false);
    assert.equal(await runtime.lease("ts-nobody", { waitSeconds: 0 }), null);
    const again = await own.getAccessToken({ oauthAppRef: "OAuthApp/files" });
    assert(again.status === "authorization_required", again.status);
    await agree(String((await running.links())[0]?.authorizationUrl));
    await runtime.waitFor(again.authSessionId);
    assert.equal(await (await runtime.lease("ts-planner", { waitSeconds: 5 }))?.nack(), true);
  });
});

test("two accounts of one user, by name", { skip }, async () => {
  const DESK = "OAuthApp/desk";
  const tools = { "Tool/desk": [{ oauthAppRef: DESK, scopes: ["read"] }] };
  const accounts = { [DESK]: ["work", "a/b@c"] };
  await createRuntimeFromEnv().withTurn({ turn: { ...turn(), auth: { ...AUTH, accounts } }, tools }, async (running) => {
    const tool = await running.oauth("Tool/desk");
    const nameless = await tool.getAccessToken({ oauthAppRef: DESK });
    assert(nameless.status === "error" && nameless.error.code === "accountRequired", JSON.stringify(nameless));
    const tokens = new Map<string, string>();
    for (const account of ["work", "a/b@c"]) {
      const asked = await tool.getAccessToken({ oauthAppRef: DESK, account });
      assert(asked.status === "authorization_required", asked.status);
      await agree(asked.authorizationUrl);
      const answer = await tool.fetch(`${DESK}@${account}`, "POST", `${api}/messages?q=1`, { headers: { "X-Tool": "7" }, content: "{}" });
      assert(answer instanceof ApiAnswer, JSON.stringify(answer));
      const narrowed = await tool.narrow({ apps: { desk: ["read"] } });
      for (const ready of [
        await tool.getAccessToken({ oauthAppRef: DESK, account }),
        await tool.getAccessToken({ oauthAppRef: `${DESK}@${account}` }),
        await narrowed.getAccessToken({ oauthAppRef: { kind: "OAuthApp", name: `desk@${account}` } }),
      ]) {
        assert(ready.status === "ready", JSON.stringify(ready));
        assert.equal(tokens.get(account) ?? ready.accessToken, ready.accessToken);
        tokens.set(account, ready.accessToken);
      }
    }
    assert.equal(new Set(tokens.values()).size, 2);
    const unlisted = await tool.fetch(`${DESK}@other`, "GET", `${api}/messages`);
    assert(unlisted.status === "error" && unlisted.error.code === "accountForbidden", JSON.stringify(unlisted));
    await assert.rejects(tool.narrow({ apps: { "desk@work": ["read"] } }), (error: BrokerError) => error.code === "requestInvalid");
  });
});

test("what operators do", { skip }, async () => {
  const runtime = createRuntimeFromEnv();
  assert.deepEqual((await runtime.apps()).map((app) => app.name).sort(), ["desk", "files", "mail", "meter", "team"]);
  const grants = [];
  for await (const grant of runtime.grants({ app: "mail", state: "live" })) grants.push(grant);
  assert.equal(grants.length, 1);
  assert.equal(await runtime.revoke(String(grants[0]?.grantId)), "done");
  assert.equal(await runtime.revoke(String(grants[0]?.grantId)), null);
  const line = { app: "mail", subject: "idp:user:TS1", accessToken: "an-access-token", expiresAt: "2099-01-01T00:00:00Z" };
  const imported = await runtime.importGrants([line, { app: "mail" }], "ts-1");
  assert.deepEqual([imported.imported, imported.refused, imported.problems[0]?.line], [1, 1, 2]);
  assert.deepEqual(await runtime.importGrants([line, { app: "mail" }], "ts-1"), imported);
  await assert.rejects(runtime.importGrants([line], "ts-1"), (error: BrokerError) => error.code === "idempotencyConflict");
  const dry = await runtime.erase("idp:user:U234567", { dryRun: true });
  assert.deepEqual([dry.erased, dry.grants >= 1], [false, true]);
  const { url } = await runtime.connectionsLink({ user: "idp:user:U234567" });
  assert.match(url, /\/connections\//);
  await assert.rejects(runtime.confirm({ handle: "x".repeat(43), subject: "idp:user:U1" }), BrokerError);
});
