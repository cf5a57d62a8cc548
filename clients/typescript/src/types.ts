/** The specification's words (section 12.5), and what the API adds to them. */

/** The languages of messages and errors. */
export type Locale = "en" | "ko";

/** `"OAuthApp/slack-bot"`, `"CredentialApp/datadog"`, or the same as an object. */
export type ObjectRefLike = string | { kind: string; name: string; apiVersion?: string };

/** What a tool asks for (12.5.1). There is no field for a subject: it is the turn's. */
export interface OAuthTokenRequest {
  oauthAppRef: ObjectRefLike;
  /** One of the accounts that the turn lists. */
  account?: string;
  /** A subset of the app's scopes; all of what this tool may use when it is left out. */
  scopes?: readonly string[];
  /** How long the token has to live at least. */
  minTtlSeconds?: number;
}

/** A token to call the provider with. Ask each time you need one, and keep none. */
export interface OAuthTokenReady {
  status: "ready";
  accessToken: string;
  tokenType: string;
  scopes: string[];
  /** ISO 8601; a token without it never expires. */
  expiresAt?: string;
  /** It could not be refreshed just now and lives shorter than usual, or the broker's database could not confirm it. */
  degraded?: true;
  /** What the provider said beside the token and its preset declares for tools, such as the host of its API. */
  providerData?: Record<string, string | number | boolean>;
}

/**
 * Why a person has to agree. `scopesDeclined`: the scopes that the message names were asked for before and not granted,
 * so a tool that can do without them goes on without. A newer broker may know one more.
 */
export type AuthorizationReason =
  | "noGrant"
  | "revoked"
  | "expired"
  | "scopes"
  | "scopesDeclined"
  | "refreshUncertain"
  | "choiceNeeded"
  | "keyRejected"
  | (string & {});

/** A person has to agree first: return `message`, which has no link, and `authorizationUrl`. The runtime shows them and ends the turn. */
export interface OAuthTokenAuthorizationRequired {
  status: "authorization_required";
  authSessionId: string;
  authorizationUrl: string;
  expiresAt: string;
  message: string;
  reason?: AuthorizationReason;
  deviceCode?: DeviceCode;
}

/** Where a person goes, and what to type there (12.5.7). */
export interface DeviceCode {
  verificationUri: string;
  verificationUriComplete?: string;
  userCode: string;
  interval: number;
}

/** Nothing that a person at a browser can fix. `retryable` says whether asking again later can help. */
export interface OAuthTokenError {
  status: "error";
  error: {
    code: string;
    message: string;
    retryable: boolean;
    retryAfterSeconds?: number;
    /** For `requestInvalid`: where the request is wrong (RFC 6901), and `missing`, `unknown`, `type` or `value`. */
    errors?: readonly { pointer: string; problem: string }[];
    /** For `accountRequired`: the accounts that the call may name. */
    accounts?: { account: string; label?: string; identity?: string; name?: string }[];
  };
}

/** One of three, told apart by `status` (12.5.2). */
export type OAuthTokenResult = OAuthTokenReady | OAuthTokenAuthorizationRequired | OAuthTokenError;

/** The `auth.pending` block (12.5.8). Without links where they are delivered apart. */
export interface AuthPendingBlock {
  type: "auth.pending";
  items: AuthPendingItem[];
}

export interface AuthPendingItem {
  authSessionId: string;
  oauthAppRef: { kind: "OAuthApp" | "CredentialApp"; name: string };
  provider: string;
  subjectMode: "global" | "user";
  account?: string;
  authorizationUrl?: string;
  expiresAt: string;
  message: string;
  deviceCode?: DeviceCode;
}

/** A link for one person's eyes. */
export interface PrivateLink {
  authSessionId: string;
  authorizationUrl: string;
  subjectMode: "global" | "user";
  subject: string;
  account?: string;
  expiresAt: string;
  deviceCode?: DeviceCode;
}

/** Whom a turn acts for. Only a runtime says it. */
export interface TurnAuth {
  actor?: Record<string, string>;
  subjects?: { global?: string; user?: string };
  /** The accounts that may be used, app by app. */
  accounts?: Record<string, readonly string[] | { allowed: readonly string[]; default?: string }>;
}

/** The turn as the runtime knows it. */
export interface TurnInfo {
  agentName: string;
  instanceKey: string;
  /** `Swarm/default` when it is left out. */
  swarmRef?: ObjectRefLike;
  /** Comes back with the event that resumes the turn. */
  origin?: Record<string, unknown>;
  auth?: TurnAuth;
  /** The language of its messages; the broker's when it is left out. */
  locale?: Locale;
}

/** One app a tool may ask for, and which of its scopes. */
export interface ToolAuth {
  oauthAppRef: ObjectRefLike;
  scopes?: readonly string[];
  /** The tool gets no token, only requests that carry one. */
  delivery?: "injected";
}

/** What wakes an agent up. The same `eventId` twice is the same event delivered twice. */
export interface AgentEvent {
  eventId: string;
  /** One of the broker's types, or another program's: `namespace.word`. */
  type: "auth.granted" | "auth.denied" | "auth.failed" | "auth.revoked" | "auth.expiring" | "auth.expired" | (string & Record<never, never>);
  swarmRef: { kind: string; name: string };
  instanceKey: string;
  agentName: string;
  origin: Record<string, unknown>;
  auth: TurnAuth;
  locale?: Locale;
  payload: Record<string, unknown>;
  createdAt: string;
}

/** How an authorization stands; `code` says why a failed one failed. */
export interface SessionOutcome {
  authSessionId: string;
  status: "pending" | "completed" | "failed" | "expired";
  code?: string;
}

/** An app as its callers may know it. */
export interface AppInfo {
  name: string;
  title: string;
  provider: string;
  flow: string;
  subjectMode: "global" | "user";
  scopes: string[];
  /** The environment variables in which programs look for its token. */
  environment: string[];
}

/** One grant without its tokens. */
export interface GrantSummary {
  grantId: string;
  app: string;
  provider: string;
  subject: string;
  scopes: string[];
  state: "live" | "revoked";
  /** The step before a tool gets a token: the user consents again, the next call refreshes it, or none. */
  needs: "consent" | "refresh" | null;
  /** Null for a token that never ends, or whose end is unknown. */
  expiresAt: string | null;
  /** When the grant ends although it is refreshed; null where that is not known. */
  endsAt: string | null;
  refreshable: boolean;
  createdAt: string;
  updatedAt: string;
  /** One of the subject's accounts, left out for the unnamed one. */
  account?: string;
  /** The person's own name for it. */
  label?: string;
  /** What people call the provider's account: a login, a mail address. For display alone. */
  accountName?: string;
  /** Of a static credential: `credential`, or `credential next`. */
  slots?: string;
  authorizedBy: string | null;
  eventsToSend: number;
  providerToTell: boolean;
  providerData: Record<string, string | number | boolean>;
  /** Imported, and its provider has not confirmed the account. */
  unverified: boolean;
}

/** A line of an import, as docs/how-to/import-grants.md lists its members. */
export type ImportLine = Record<string, unknown>;

/** How many lines had each outcome, and the first refused ones, numbered from 1. */
export interface Imported {
  lines: number;
  imported: number;
  there: number;
  kept: number;
  revoked: number;
  refused: number;
  unverified: number;
  problems: { line: number; reasons: string[]; code: string | null }[];
}

/** What there was of a subject. `erased` is false while a provider has to be told, a browser is connecting, a run has to end, or a record cannot be read. */
export interface Erased {
  erased: boolean;
  grants: number;
  sessions: number;
  events: number;
  turns: number;
  browserSessions: number;
  uses: number;
  pluginValues: number;
  pluginRecords: number;
  toTell: number;
  connecting: number;
  ending: number;
  /** Damaged records of its grants, which stay. */
  unreadable: number;
  namedIn: string[];
}
