/** The one error this package throws on purpose, and its sentences where the broker sent none. */

import type { Locale } from "./types.js";

const SENTENCES: Record<Locale, Record<string, string>> = {
  en: {
    brokerUnreachable: "The token broker does not answer right now. Ask again later.",
    brokerAnswerInvalid:
      "The answer does not come from a token broker that this client understands. Check the address and both versions.",
    requestInvalid: "The request does not have the expected form. Send only the fields that the call defines, each in its own format.",
    unauthenticated: "The caller is not known. Send a valid token.",
  },
  ko: {
    brokerUnreachable: "지금은 토큰 브로커가 응답하지 않습니다. 나중에 다시 요청하십시오.",
    brokerAnswerInvalid: "이 클라이언트가 이해할 수 있는 토큰 브로커의 응답이 아닙니다. 주소와 양쪽 버전을 확인하십시오.",
    requestInvalid: "요청 형식이 올바르지 않습니다. 호출에 정의된 필드만 올바른 형식으로 보내십시오.",
    unauthenticated: "호출자를 확인할 수 없습니다. 유효한 토큰을 보내십시오.",
  },
};

/** A wrong member of a request: where (RFC 6901), and `missing`, `unknown`, `type` or `value`. */
export interface RequestError {
  pointer: string;
  problem: string;
}

/** A refusal with its code (docs/errors.md). It never holds a token, a key or a body. */
export class BrokerError extends Error {
  override readonly name = "BrokerError";
  readonly code: string;
  readonly retryable: boolean;
  readonly status: number | undefined;
  readonly retryAfterSeconds: number | undefined;
  /** Of `requestInvalid`: the wrong members, as the API names them. */
  readonly errors: readonly RequestError[];
  /** Of `brokerUnreachable`: the broker that did not answer. */
  readonly address: string | undefined;
  readonly #said: string | undefined;

  constructor(code: string, more: Partial<Pick<BrokerError, "message" | "retryable" | "status" | "retryAfterSeconds" | "errors" | "address">> = {}) {
    super((more.message ?? SENTENCES.en[code] ?? code) + at(more.address));
    this.code = code;
    this.retryable = more.retryable ?? code === "brokerUnreachable";
    this.status = more.status;
    this.retryAfterSeconds = more.retryAfterSeconds;
    this.address = more.address;
    this.errors = more.errors ?? [];
    this.#said = more.message;
  }

  /** The broker's sentence as it came, else this client's own in that language. */
  messageIn(locale: Locale): string {
    const own = SENTENCES[locale][this.code];
    return this.#said ?? (own === undefined ? this.message : own + at(this.address));
  }
}

function at(address: string | undefined): string {
  return address === undefined ? "" : ` (${address})`;
}

/** The locale of that name; undefined for any other word. */
export function knownLocale(word: string | undefined): Locale | undefined {
  return word === "en" || word === "ko" ? word : undefined;
}
