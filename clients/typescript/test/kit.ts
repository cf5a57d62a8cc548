/** A broker that answers as a test scripts it, for what a good one never does. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export const TURN_TOKEN = `oabt.${"l".repeat(22)}.${"s".repeat(43)}`;
export const KEY = `oabk.${"i".repeat(22)}.${"s".repeat(43)}`;
export const READY = { status: "ready", accessToken: "at-1", tokenType: "bearer", scopes: ["read"] };

export interface Asked {
  line: string;
  headers: IncomingMessage["headers"];
  body: unknown;
}

export type Answer = (response: ServerResponse) => void;

export interface FakeBroker {
  url: string;
  asked: Asked[];
  close(): Promise<void>;
}

/** Answers the next request with the next of `answers`, the last one for ever. `where` is a path of a Unix socket. */
export async function fakeBroker(answers: Answer[], where?: string): Promise<FakeBroker> {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      const text = Buffer.concat(parts).toString();
      asked.push({ line: `${request.method} ${request.url}`, headers: request.headers, body: text ? JSON.parse(text) : undefined });
      (answers[Math.min(asked.length, answers.length) - 1] as Answer)(response);
    });
  });
  await new Promise<void>((resolve) => (where === undefined ? server.listen(0, "127.0.0.1", resolve) : server.listen(where, resolve)));
  const url = where === undefined ? `http://127.0.0.1:${(server.address() as AddressInfo).port}` : "http://localhost";
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return { url, asked, close };
}

export function says(status: number, body?: unknown, headers: Record<string, string> = {}): Answer {
  return (response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(typeof body === "string" ? body : body === undefined ? undefined : JSON.stringify(body));
  };
}

export function refuses(status: number, code: string, headers: Record<string, string> = {}): Answer {
  return says(status, { type: "about:blank", title: "x", status, code }, { "content-type": "application/problem+json", ...headers });
}

/** The connection ends without a word. */
export const hangsUp: Answer = (response) => {
  response.destroy();
};

export async function withFake<T>(answers: Answer[], work: (fake: FakeBroker) => Promise<T>): Promise<T> {
  const fake = await fakeBroker(answers);
  try {
    return await work(fake);
  } finally {
    await fake.close();
  }
}
