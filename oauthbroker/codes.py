"""The words of every refusal: a closed set, and what callers see. What each means is in `meanings`."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """One code per meaning. The value is what callers see."""

    OAUTH_APP_NOT_FOUND = "oauthAppNotFound"
    SUBJECT_UNAVAILABLE = "subjectUnavailable"
    SCOPE_NOT_ALLOWED = "scopeNotAllowed"
    APP_FORBIDDEN = "appForbidden"
    NOT_ALLOWED = "notAllowed"
    REQUEST_INVALID = "requestInvalid"
    MIN_TTL_UNSATISFIABLE = "minTtlUnsatisfiable"
    DEVICE_CODE_UNSUPPORTED = "deviceCodeUnsupported"
    CONFIG_INVALID = "configInvalid"
    CALLBACK_MALFORMED = "callbackMalformed"
    STATE_UNKNOWN = "stateUnknown"
    STATE_EXPIRED = "stateExpired"
    STATE_USED = "stateUsed"
    APP_MISMATCH = "appMismatch"
    ISSUER_MISMATCH = "issuerMismatch"
    OWNER_BINDING_FAILED = "ownerBindingFailed"
    PROVIDER_DENIED = "providerDenied"
    EXCHANGE_FAILED = "exchangeFailed"
    EXCHANGE_UNCERTAIN = "exchangeUncertain"
    TOKEN_RESPONSE_INVALID = "tokenResponseInvalid"
    ID_TOKEN_INVALID = "idTokenInvalid"
    SUBJECT_MISMATCH = "subjectMismatch"
    SUBJECT_UNVERIFIABLE = "subjectUnverifiable"
    SUBJECT_FORBIDDEN = "subjectForbidden"
    SCOPE_INSUFFICIENT = "scopeInsufficient"
    SCOPE_EXCEEDED = "scopeExceeded"
    REAUTH_REQUIRED = "reauthRequired"
    REFRESH_IN_PROGRESS = "refreshInProgress"
    REFRESH_REFUSED = "refreshRefused"
    REFRESH_UNCERTAIN = "refreshUncertain"
    APP_MISCONFIGURED = "appMisconfigured"
    PROVIDER_UNREACHABLE = "providerUnreachable"
    PROVIDER_RATE_LIMITED = "providerRateLimited"
    STORE_LOCKED = "storeLocked"
    STORE_UNAVAILABLE = "storeUnavailable"
    AUDIT_UNAVAILABLE = "auditUnavailable"
    STORE_PERMISSIONS = "storePermissions"
    STORE_ROLLED_BACK = "storeRolledBack"
    RECORD_CORRUPT = "recordCorrupt"
    RECORD_MISPLACED = "recordMisplaced"
    KEY_UNKNOWN = "keyUnknown"
    KEY_MISMATCH = "keyMismatch"
    KEY_EXISTS = "keyExists"
    UNAUTHENTICATED = "unauthenticated"
    TURN_ENDED = "turnEnded"
    LEASE_LOST = "leaseLost"
    GRANT_NOT_FOUND = "grantNotFound"
    NOT_FOUND = "notFound"
    METHOD_NOT_ALLOWED = "methodNotAllowed"
    UNSUPPORTED_MEDIA_TYPE = "unsupportedMediaType"
    REQUEST_TOO_LARGE = "requestTooLarge"
    REQUEST_TIMEOUT = "requestTimeout"
    SERVER_BUSY = "serverBusy"
    RATE_LIMITED = "rateLimited"
    HOST_NOT_ALLOWED = "hostNotAllowed"
    BROKER_UNREACHABLE = "brokerUnreachable"
    BROKER_ANSWER_INVALID = "brokerAnswerInvalid"


def known_code(word: str) -> Code | None:
    """The code of that word, or None: a newer broker may know more."""
    return _CODES.get(word)


_CODES = {code.value: code for code in Code}
