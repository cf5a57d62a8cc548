/** The runtime's side: begins turns, hands tokens to tools, takes events off the queue, confirms owners. */

import { BrokerError, checkedWait, isAmount, knownLocale } from "./errors.js";
import { environment, listOf, needed, type OAuth, TurnOAuth } from "./oauth.js";
import { callRef } from "./refs.js";
import type { AgentEvent, AppInfo, AuthPendingBlock, Erased, GrantSummary, Imported, ImportLine, Locale, ObjectRefLike, PrivateLink, SessionOutcome, ToolAuth, TurnInfo } from "./types.js";
import { type Call, type CallOptions, checkedBearer, type ClientOptions, isObject, membersOf, part, sleep, Wire, written } from "./wire.js";

const IMPORT_PATIENCE_MS = 3_600_000;

export interface RuntimeOptions extends ClientOptions {
  /** An API key of role `runtime`; left out over a Unix socket that knows our user. */
  key?: string;
}

export interface BeginTurn {
  turn: TurnInfo;
  /** Tools to make tokens for: names, or what each may ask for (null: what the bundle declares). */
  tools?: readonly string[] | Record<string, readonly ToolAuth[] | null>;
  ttlSeconds?: number;
  /** Links leave the transcript: `links()` has them. */
  privateLinks?: boolean;
}

/** The runtime's key holder. Every call throws BrokerError. */
export function createRuntime(options: RuntimeOptions): Runtime {
  return new Runtime(new Wire(options), options.key === undefined ? undefined : checkedBearer(options.key));
}

/** The same from OAUTHBROKER_URL and OAUTHBROKER_API_KEY. */
export function createRuntimeFromEnv(env: Record<string, string | undefined> = environment()): Runtime {
  const key = env["OAUTHBROKER_API_KEY"];
  return createRuntime({ baseUrl: needed(env, "OAUTHBROKER_URL"), ...(key ? { key } : {}) });
}

export class Runtime {
  readonly #wire: Wire;
  readonly #key: string | undefined;

  constructor(wire: Wire, key: string | undefined) {
    this.#wire = wire;
    this.#key = key;
  }

  /** Begins a turn; `end()` it. Not repeated once it may have arrived: each one that arrives is a turn of its own. */
  async beginTurn(begin: BeginTurn, options: CallOptions = {}): Promise<RunningTurn> {
    const { tools = [], ...rest } = Object(begin) as BeginTurn;
    const named = Array.isArray(tools) ? Object.fromEntries((tools as readonly string[]).map((tool) => [tool, null])) : tools;
    const call = { method: "POST", path: "/v1/turns", body: { ...rest, tools: named }, repeatable: false } as const;
    const reply = await this.#send({ ...call, signal: options.signal }, 201);
    const said = membersOf(reply);
    if (typeof said["turnId"] !== "string" || typeof said["turnToken"] !== "string" || !isObject(said["toolTokens"])) {
      throw new BrokerError("brokerAnswerInvalid", { status: reply.status });
    }
    const locale = knownLocale(rest.turn.locale);
    return new RunningTurn(this.#wire, said as unknown as Begun, (turnId) => this.endTurn(turnId), locale);
  }

  /** No token of the turn is any good from now on. Also when it had ended. */
  async endTurn(turnId: string, options: CallOptions = {}): Promise<void> {
    await this.#send({ method: "DELETE", path: `/v1/turns/${part(turnId)}`, signal: options.signal }, 204);
  }

  /** `beginTurn` and `end` around a piece of work. A broker that cannot be told of the end lets the turn run out. */
  async withTurn<T>(begin: BeginTurn, work: (turn: RunningTurn) => Promise<T>): Promise<T> {
    const turn = await this.beginTurn(begin);
    try {
      return await work(turn);
    } finally {
      await turn.end().catch((error: unknown) => {
        if (!(error instanceof BrokerError && error.retryable)) throw error;
      });
    }
  }

  /** The agent's next event; null when none came within `waitSeconds` (30, at most 60). Settle it: `ack` or `nack`. */
  async lease(agent: string, options: CallOptions & { waitSeconds?: number } = {}): Promise<Delivery | null> {
    const seconds = Math.round(Math.min(60, checkedWait(options.waitSeconds)));
    const path = `/v1/agents/${part(agent)}/events${seconds ? `?wait=${seconds}` : ""}`;
    const reply = await this.#send({ method: "GET", path, patienceMs: seconds * 1000, signal: options.signal }, 200, 204);
    if (reply.status === 204) return null;
    const said = membersOf(reply);
    if (!isObject(said["event"]) || typeof said["event"]["eventId"] !== "string" || typeof said["lease"] !== "string") {
      throw new BrokerError("brokerAnswerInvalid", { status: reply.status });
    }
    const { event, lease, attempt, leaseExpiresAt } = said as unknown as Leased;
    const settle = (how: string): Promise<boolean> => this.#settle(`${part(agent)}/events/${part(event.eventId)}/${how}`, lease);
    return new Delivery(event, attempt, leaseExpiresAt, settle);
  }

  /** The agent's events, one at a time, until `signal`. It outlives a broker that is away, busy or restarts. */
  async *events(agent: string, options: CallOptions & { waitSeconds?: number } = {}): AsyncGenerator<Delivery, void, void> {
    for (;;) {
      try {
        const delivery = await this.lease(agent, { ...options, waitSeconds: Math.max(1, checkedWait(options.waitSeconds)) });
        if (delivery === null) continue;
        yield delivery;
      } catch (error) {
        if (options.signal?.aborted) return;
        if (!mayPass(error)) throw error;
        await sleep(pauseAfter(error), options.signal).catch(() => undefined);
      }
      if (options.signal?.aborted) return;
    }
  }

  /** How an authorization stands. */
  async session(authSessionId: string, options: CallOptions = {}): Promise<SessionOutcome> {
    const path = `/v1/auth-sessions/${part(authSessionId)}`;
    return membersOf(await this.#send({ method: "GET", path, signal: options.signal }, 200)) as unknown as SessionOutcome;
  }

  /** Waits until an authorization has ended; `pending` after `timeoutMs`. It outlives a broker that is away, busy or restarts. */
  async waitFor(authSessionId: string, options: CallOptions & { timeoutMs?: number } = {}): Promise<SessionOutcome> {
    const { timeoutMs = 600_000 } = options;
    if (!isAmount(timeoutMs)) throw new BrokerError("requestInvalid", { message: "timeoutMs is a number of milliseconds from 0. Send one such as 600000." });
    const deadline = Date.now() + timeoutMs;
    for (let pause = 200; ; pause = Math.min(pause * 2, 2000)) {
      let wait = pause;
      try {
        const outcome = await this.session(authSessionId, options);
        if (outcome.status !== "pending" || Date.now() >= deadline) return outcome;
      } catch (error) {
        if (!mayPass(error) || Date.now() >= deadline) throw error;
        wait = pauseAfter(error);
      }
      await sleep(Math.max(0, Math.min(wait, deadline - Date.now())), options.signal);
    }
  }

  /** The person said no in the conversation: the link dies, no event. False when there was nothing to cancel. */
  async cancel(authSessionId: string, options: CallOptions = {}): Promise<boolean> {
    const path = `/v1/auth-sessions/${part(authSessionId)}`;
    return membersOf(await this.#send({ method: "DELETE", path, signal: options.signal }, 200))["cancelled"] === true;
  }

  /** `runtimeConfirm`: who is logged in where the browser brought this handle. */
  async confirm(confirmed: { handle: string; subject: string }, options: CallOptions = {}): Promise<SessionOutcome> {
    const call = { method: "POST", path: "/v1/auth-sessions/confirm", body: confirmed, repeatable: false } as const;
    return membersOf(await this.#send({ ...call, signal: options.signal }, 200)) as unknown as SessionOutcome;
  }

  /** A link that opens the page of these subjects' connections once. For that person alone. */
  async connectionsLink(subjects: { global?: string; user?: string }, options: CallOptions = {}): Promise<{ url: string; expiresAt: string }> {
    const call = { method: "POST", path: "/v1/connections", body: { subjects }, signal: options.signal } as const;
    return membersOf(await this.#send(call, 201)) as unknown as { url: string; expiresAt: string };
  }

  /** The apps there are. */
  async apps(options: CallOptions = {}): Promise<AppInfo[]> {
    return listOf(await this.#send({ method: "GET", path: "/v1/apps", signal: options.signal }, 200), "apps") as unknown as AppInfo[];
  }

  /** For operators: the grants there are, page by page. */
  async *grants(which: { app?: ObjectRefLike; subject?: string; state?: "live" | "revoked" } & CallOptions = {}): AsyncGenerator<GrantSummary, void, void> {
    const { signal, app, ...others } = which;
    const asked = app === undefined ? others : { app: callRef(app), ...others };
    let after: string | undefined;
    do {
      const query = new URLSearchParams({ ...asked, ...(after === undefined ? {} : { after }) }).toString();
      const reply = await this.#send({ method: "GET", path: `/v1/grants${query && `?${query}`}`, signal }, 200);
      yield* listOf(reply, "grants") as unknown as GrantSummary[];
      const { next } = membersOf(reply);
      after = typeof next === "string" ? next : undefined;
    } while (after !== undefined);
  }

  /** For operators: takes over grants of another system. The same `key` with the same lines imports nothing twice. */
  async importGrants(lines: Iterable<ImportLine>, key: string, options: CallOptions = {}): Promise<Imported> {
    const content = new TextEncoder().encode([...lines].map((line) => `${written(line)}\n`).join(""));
    const headers = { "content-type": "application/x-ndjson", "idempotency-key": key };
    const call = { method: "POST", path: "/v1/grants", content, headers, patienceMs: IMPORT_PATIENCE_MS, signal: options.signal };
    return membersOf(await this.#send(call, 200)) as unknown as Imported;
  }

  /** For operators: ends a grant here at once; what its provider knows by now. Null when no such grant was alive. */
  async revoke(grantId: string, options: CallOptions = {}): Promise<string | null> {
    try {
      const path = `/v1/grants/${part(grantId)}`;
      return String(membersOf(await this.#send({ method: "DELETE", path, signal: options.signal }, 200))["provider"]);
    } catch (error) {
      if (error instanceof BrokerError && error.code === "grantNotFound") return null;
      throw error;
    }
  }

  /** For operators: revokes a subject's grants and removes all its records, once every provider knows. */
  async erase(subject: string, options: CallOptions & { dryRun?: boolean } = {}): Promise<Erased> {
    const { signal, ...more } = options;
    const call = { method: "POST", path: "/v1/subjects/erase", body: { subject, ...more }, signal } as const;
    return membersOf(await this.#send(call, 200)) as unknown as Erased;
  }

  async #settle(where: string, lease: string): Promise<boolean> {
    try {
      await this.#send({ method: "POST", path: `/v1/agents/${where}`, body: { lease } }, 204);
      return true;
    } catch (error) {
      if (error instanceof BrokerError && error.code === "leaseLost") return false;
      throw error;
    }
  }

  async #send(call: Call, ...statuses: number[]): ReturnType<Wire["send"]> {
    return this.#wire.send({ ...call, bearer: this.#key }, ...statuses);
  }
}

function mayPass(error: unknown): error is BrokerError {
  return error instanceof BrokerError && error.retryable;
}

/** Milliseconds until a broker that is away, busy or restarts is asked again. */
function pauseAfter(error: BrokerError): number {
  return (error.retryAfterSeconds ?? 0.5 + Math.random()) * 1000;
}

interface Begun {
  turnId: string;
  turnToken: string;
  toolTokens: Record<string, string>;
  expiresAt: string;
}

interface Leased {
  event: AgentEvent;
  lease: string;
  attempt: number;
  leaseExpiresAt: string;
}

/** A leased event. An unsettled one comes again when the lease ends. */
export class Delivery {
  readonly #settle: (how: string) => Promise<boolean>;

  constructor(
    readonly event: AgentEvent,
    readonly attempt: number,
    readonly leaseExpiresAt: string,
    settle: (how: string) => Promise<boolean>,
  ) {
    this.#settle = settle;
  }

  /** Acknowledge the event. False when the lease had ended and another consumer has the event now. */
  ack(): Promise<boolean> {
    return this.#settle("ack");
  }

  /** Not done: it comes again after a back-off, a few times at most. */
  nack(): Promise<boolean> {
    return this.#settle("nack");
  }
}

/** A turn that was begun. Its tokens end with it. */
export class RunningTurn {
  readonly turnId: string;
  readonly expiresAt: string;
  readonly #wire: Wire;
  readonly #begun: Begun;
  readonly #end: (turnId: string) => Promise<void>;
  readonly #locale: Locale | undefined;

  constructor(wire: Wire, begun: Begun, end: (turnId: string) => Promise<void>, locale: Locale | undefined) {
    this.turnId = begun.turnId;
    this.expiresAt = begun.expiresAt;
    this.#wire = wire;
    this.#begun = begun;
    this.#end = end;
    this.#locale = locale ?? wire.locale;
  }

  /** What the tool `Tool/name` gets, in OAUTHBROKER_TURN_TOKEN. Throws `requestInvalid` for one that is not in `tools`. */
  async tokenFor(tool: string): Promise<string> {
    const { toolTokens } = this.#begun;
    if (!Object.hasOwn(toolTokens, tool)) {
      throw new BrokerError("requestInvalid", { message: `${tool} is not among the turn's tools.` });
    }
    return String(toolTokens[tool]);
  }

  /** `ctx.oauth` of a tool that runs here; without a name, the runtime's own view of every app. */
  async oauth(tool?: string): Promise<OAuth> {
    return new TurnOAuth(this.#wire, tool === undefined ? this.#begun.turnToken : await this.tokenFor(tool), this.#locale);
  }

  /** The `auth.pending` block for `step.blocks`, or null when nothing waits for a person. It throws nothing but for `signal`. */
  async pending(options: CallOptions & { links?: "inline" | "apart" } = {}): Promise<AuthPendingBlock | null> {
    return (await this.oauth()).pending(options);
  }

  /** The links of a turn whose blocks have none, for their persons alone. Throws: a link that is not sent leaves its person waiting. */
  async links(options: CallOptions = {}): Promise<PrivateLink[]> {
    const { turnToken: bearer } = this.#begun;
    const call = { method: "GET", path: "/v1/turn/links", bearer, locale: this.#locale, signal: options.signal } as const;
    return listOf(await this.#wire.send(call, 200), "links") as unknown as PrivateLink[];
  }

  /** What the person sent back in the conversation (`channelCode`). */
  async relayCode(channelCode: string, options: CallOptions = {}): Promise<SessionOutcome> {
    return (await this.oauth()).relayCode(channelCode, options);
  }

  end(): Promise<void> {
    return this.#end(this.turnId);
  }
}

