/** The one error this package throws on purpose, and what it says for a network that gives no answer. */

const SENTENCES: Record<string, string> = {
  brokerUnreachable: "The token broker does not answer right now. Ask again later.",
  brokerAnswerInvalid:
    "What answered is not a token broker that this client understands. Check its address, and both versions.",
  requestInvalid: "The request does not have the expected form.",
};

/** A refusal with its code (docs/errors.md). It never holds a token, a key or a body. */
export class BrokerError extends Error {
  override readonly name = "BrokerError";
  readonly code: string;
  readonly retryable: boolean;
  readonly status: number | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: string, more: Partial<Pick<BrokerError, "message" | "retryable" | "status" | "retryAfterSeconds">> = {}) {
    super(more.message ?? SENTENCES[code] ?? code);
    this.code = code;
    this.retryable = more.retryable ?? code === "brokerUnreachable";
    this.status = more.status;
    this.retryAfterSeconds = more.retryAfterSeconds;
  }
}
