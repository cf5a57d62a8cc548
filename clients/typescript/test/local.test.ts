/** A person's own token, by the program `oauthbroker` on PATH: here a script that says what a test wants. */

import assert from "node:assert/strict";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { BrokerError } from "../src/index.js";
import { localToken } from "../src/node.js";

const TOKEN = "at-of-a-person";
const READY = JSON.stringify({ status: "ready", accessToken: TOKEN, tokenType: "Bearer", scopes: ["repo"] });

/** Runs with an `oauthbroker` that prints this and ends so; the words that it got. Null: there is no such program. */
async function withProgram(said: string | null, status: number, run: () => Promise<void>): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), "local-token-"));
  const path = process.env["PATH"];
  const words = join(folder, "words");
  try {
    if (said !== null) {
      await writeFile(join(folder, "answer"), said);
      await writeFile(join(folder, "oauthbroker"), `#!/bin/sh\nprintf '%s\\n' "$@" > ${words}\ncat ${folder}/answer\nexit ${status}\n`);
      await chmod(join(folder, "oauthbroker"), 0o700);
    }
    process.env["PATH"] = said === null ? folder : folder + delimiter + path;
    await run();
    return said === null ? [] : (await readFile(words, "utf8")).trimEnd().split("\n");
  } finally {
    process.env["PATH"] = path;
    await rm(folder, { recursive: true });
  }
}

test("the token is what the program printed, and no shell and no option parser reads the name", async () => {
  const hostile = "--show; $(touch planted)";
  const words = await withProgram(READY, 0, async () => {
    assert.equal(await localToken(hostile, { scopes: ["repo", "--x"], minTtlSeconds: 90 }), TOKEN);
  });
  assert.deepEqual(words, ["token", "--json", "--scope=repo", "--scope=--x", "--min-ttl=90", "--", hostile]);
});

test("a lifetime that is no whole number of seconds is refused before the program runs", async () => {
  for (const minTtlSeconds of [NaN, Infinity, 1.5, "5"] as number[]) {
    await assert.rejects(localToken("github", { minTtlSeconds }), { code: "requestInvalid", message: /^minTtlSeconds is/ });
  }
});

test("each call asks anew: nothing is kept", async () => {
  for (const token of [TOKEN, "the-next"]) {
    await withProgram(READY.replace(TOKEN, token), 0, async () => assert.equal(await localToken("github"), token));
  }
});

const refusals: Record<string, [string | null, number, string, string]> = {
  "not logged in": ['{"error": {"code": "grantNotFound", "message": "Run: oauthbroker login github"}}', 75, "grantNotFound", "Run: oauthbroker login"],
  "in a turn": ['{"status": "authorization_required", "message": "Please agree."}', 75, "authorizationRequired", "Please agree."],
  "a usage error": ['{"error": {"code": "usage", "message": "No such option"}}', 2, "usage", "No such option"],
  "half an answer": [READY.slice(0, -3), 0, "brokerAnswerInvalid", ""],
  "another program of that name": ["[1]", 0, "brokerAnswerInvalid", ""],
  "not installed": [null, 0, "programNotFound", "Install it"],
};
for (const [why, [said, status, code, message]] of Object.entries(refusals)) {
  test(`a refusal says why, without the token: ${why}`, async () => {
    await withProgram(said, status, async () => {
      const error: unknown = await localToken("github").catch((reason: unknown) => reason);
      assert.ok(error instanceof BrokerError);
      assert.deepEqual([error.code, error.message.includes(message), inspect(error, { showHidden: true }).includes(TOKEN)], [code, true, false]);
    });
  });
}

test("a caller that gives up gets its own reason", async () => {
  await assert.rejects(localToken("github", { signal: AbortSignal.abort(new Error("enough")) }), /enough/);
});
