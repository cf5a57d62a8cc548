/** The one error this package throws on purpose, and its sentences where the broker sent none. */

import type { Locale } from "./types.js";

const SENTENCES: Record<Locale, Record<string, string>> = {
  en: {
    brokerUnreachable: "The token broker does not answer right now. Ask again later.",
    brokerAnswerInvalid:
      "The answer does not come from a token broker that this client understands. Check the address and both versions.",
    requestInvalid: "The request does not have the expected form. Send only the fields that the call defines, each in its own format.",
    unauthenticated: "The caller is not known. Send a valid token.",
    appReference: 'The call names no app in a known form. Send "OAuthApp/NAME", "CredentialApp/NAME", the bare NAME, or kind and name.',
    appAlone: "This call takes an app for all its accounts. Send its name without @account.",
    forwardedMethod: "The method of a request is a word such as GET, in capitals. Send it before the URL: app, method, URL.",
    forwardedUrl: "A request is forwarded to a whole address. Send one such as https://api.example.com/me, in ASCII, without a user and without steps such as /../.",
    forwardedHeader: "The value of the header {name} cannot be sent. Use text without line breaks. Give an HTTP client the name and a value that is not ASCII as bytes.",
    forwardedHeaderName: "A header has a name that cannot be sent. Use letters, digits and hyphens, and name each header once.",
    notJson: "A value of this call cannot be written as JSON. Send texts, numbers, lists and objects only.",
    emptyName: "A name in this call is empty, or is no text. Send the whole name.",
    wait: "A wait is a number of seconds from 0. Send one such as 30.",
    notScopes: 'The scopes of a call are a list of texts, and this is none. Send a list, such as ["read"].',
  },
  ko: {
    brokerUnreachable: "지금은 토큰 브로커가 응답하지 않습니다. 나중에 다시 요청하십시오.",
    brokerAnswerInvalid: "이 클라이언트가 이해할 수 있는 토큰 브로커의 응답이 아닙니다. 주소와 양쪽 버전을 확인하십시오.",
    requestInvalid: "요청 형식이 올바르지 않습니다. 호출에 정의된 필드만 올바른 형식으로 보내십시오.",
    unauthenticated: "호출자를 확인할 수 없습니다. 유효한 토큰을 보내십시오.",
    appReference: '호출이 앱을 알려진 형식으로 지정하지 않았습니다. "OAuthApp/이름", "CredentialApp/이름", 앱 이름만, 또는 `kind` 와 `name` 을 보내십시오.',
    appAlone: "이 호출은 앱의 모든 계정을 대상으로 합니다. @account 없이 앱 이름만 보내십시오.",
    forwardedMethod: "요청 메서드는 GET 과 같은 대문자 단어입니다. URL 앞에 보내십시오: 앱, 메서드, URL.",
    forwardedUrl: "요청은 전체 주소로만 전달됩니다. https://api.example.com/me 와 같이 사용자 이름과 /../ 단계가 없는 ASCII 주소를 보내십시오.",
    forwardedHeader: "{name} 헤더의 값을 보낼 수 없습니다. 줄바꿈이 없는 텍스트를 쓰십시오. ASCII가 아닌 값은 이름과 함께 바이트로 HTTP 클라이언트에 전달하십시오.",
    forwardedHeaderName: "헤더의 이름을 보낼 수 없습니다. 문자, 숫자, 하이픈을 쓰고, 각 헤더를 한 번만 지정하십시오.",
    notJson: "호출의 값 중 하나를 JSON 으로 쓸 수 없습니다. 문자열, 숫자, 목록, 객체만 보내십시오.",
    emptyName: "호출의 이름이 비어 있거나 문자열이 아닙니다. 전체 이름을 보내십시오.",
    wait: "대기 시간은 0 이상의 초 단위 숫자입니다. 30 과 같은 숫자를 보내십시오.",
    notScopes: '호출의 스코프는 문자열 목록이어야 합니다. ["read"] 와 같은 목록을 보내십시오.',
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
  readonly #hint: string;
  readonly #about: string;
  readonly #more: string;

  /** `hint` names a sentence that knows more of this case than the code's own, and `about` the name in it. */
  constructor(
    code: string,
    more: Partial<Pick<BrokerError, "message" | "retryable" | "status" | "retryAfterSeconds" | "errors" | "address">> & { hint?: string; about?: string } = {},
  ) {
    const behind = at(more.address, more.errors ?? []);
    super((more.message ?? sentence("en", more.hint ?? code, more.about) ?? code) + behind);
    this.#hint = more.hint ?? code;
    this.#about = more.about ?? "";
    this.#more = behind;
    this.code = code;
    this.retryable = more.retryable ?? code === "brokerUnreachable";
    this.status = more.status;
    this.retryAfterSeconds = more.retryAfterSeconds;
    this.address = more.address;
    this.errors = more.errors ?? [];
    this.#said = more.message;
  }

  /** The broker's sentence with the wrong members, else this client's own in that language. */
  messageIn(locale: Locale): string {
    const said = this.#said ?? sentence(locale, this.#hint, this.#about);
    return said === undefined ? this.message : said + this.#more;
  }
}

function sentence(locale: Locale, hint: string, about = ""): string | undefined {
  return SENTENCES[locale][hint]?.replace("{name}", () => about);
}

/** What stands behind a sentence: the broker's address, and the wrong members as `/scopes type`. */
function at(address: string | undefined, errors: readonly RequestError[]): string {
  const places = [...(address === undefined ? [] : [address]), ...errors.map((each) => `${each.pointer} ${each.problem}`)];
  return places.length === 0 ? "" : ` (${places.join("; ")})`;
}

/** `requestInvalid` that says what one argument of a call has to be. */
export function wrongArgument(hint: string, argument?: string, problem = "value", about = ""): BrokerError {
  return new BrokerError("requestInvalid", { hint, about, errors: argument === undefined ? [] : [{ pointer: `/${argument}`, problem }] });
}

/** `configInvalid` that says what an option of a client has to be. */
export function wrongOption(message: string): BrokerError {
  return new BrokerError("configInvalid", { message });
}

/** Whether this is a number from 0, and no infinite one. */
export function isAmount(value: unknown, most = Number.MAX_VALUE): value is number {
  return typeof value === "number" && value >= 0 && value <= most;
}

/** Seconds that a lease waits for an event. Throws `requestInvalid`. */
export function checkedWait(seconds: number | undefined = 30): number {
  if (!isAmount(seconds)) throw wrongArgument("wait", "waitSeconds");
  return seconds;
}

/** The locale of that name; undefined for any other word. */
export function knownLocale(word: string | undefined): Locale | undefined {
  return word === "en" || word === "ko" ? word : undefined;
}
