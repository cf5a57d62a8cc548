/** The same frozen words as the Python client's (tests/vectors/turn-token-v1.json). */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { BrokerError, narrow, type Narrowing } from "../src/index.js";

interface Vector {
  why: string;
  token: string;
  to: { tool?: string; apps?: Record<string, string[] | null>; expiresAt?: string };
  expect?: string;
  code?: string;
}

const file = new URL("../../../../tests/vectors/turn-token-v1.json", import.meta.url);
const skip = existsSync(file) ? false : "no vectors: they are in the repository, tests/vectors/";
const none: Vector = { why: "all of them", token: "", to: {} };
const vectors = (skip ? { narrowed: [none], refused: [] } : JSON.parse(readFileSync(file, "utf-8"))) as { narrowed: Vector[]; refused: Vector[] };

function narrowing({ tool, apps, expiresAt }: Vector["to"]): Narrowing {
  return {
    ...(tool === undefined ? {} : { tool }),
    ...(apps === undefined ? {} : { apps }),
    ...(expiresAt === undefined ? {} : { expiresAt: new Date(expiresAt) }),
  };
}

for (const vector of vectors.narrowed) {
  test(`a token is narrowed as the vector says: ${vector.why}`, { skip }, async () => {
    assert.equal(await narrow(vector.token, narrowing(vector.to)), vector.expect);
  });
}

for (const vector of vectors.refused) {
  test(`a narrowing is refused as the vector says: ${vector.why}`, { skip }, async () => {
    await assert.rejects(narrow(vector.token, narrowing(vector.to)), (error) => error instanceof BrokerError && error.code === vector.code);
  });
}

test("a moment that is none is refused", { skip }, async () => {
  await assert.rejects(narrow(String(vectors.narrowed[0]?.token), { expiresAt: new Date("soon") }), /expected form/);
});
