/** For Node alone: a fetch that speaks over a Unix socket, which the platform's own cannot, and a person's own tokens. */

import { request } from "node:http";
import { Readable } from "node:stream";
import type { Fetch } from "./wire.js";

export { localToken, type LocalTokenOptions } from "./local.js";

const WITHOUT_BODY = new Set([204, 205, 304]);

/** `createOAuth({ baseUrl: "http://localhost", fetch: unixSocketFetch("/run/oauthbroker.sock"), turnToken })`. */
export function unixSocketFetch(socketPath: string): Fetch {
  return (url, init) =>
    new Promise((resolve, reject) => {
      const { pathname, search, host } = new URL(url);
      const headers = { ...(init.headers as Record<string, string>), host };
      const signal = init.signal ? { signal: init.signal } : {};
      const asked = request({ socketPath, path: pathname + search, method: init.method ?? "GET", headers, ...signal }, (answer) => {
        const status = answer.statusCode ?? 0;
        const body = WITHOUT_BODY.has(status) ? null : (Readable.toWeb(answer) as ReadableStream<Uint8Array<ArrayBuffer>>);
        if (body === null) answer.resume();
        const said = Object.entries(answer.headers).filter((each): each is [string, string] => typeof each[1] === "string");
        try {
          resolve(new Response(body, { status, headers: said }));
        } catch (error) {
          asked.destroy();
          reject(error as Error);
        }
      });
      asked.on("error", reject);
      asked.end(init.body as string | Uint8Array | undefined);
    });
}
