"""The errors of the broker: a closed set of codes, and the one exception that carries them.

The sentences are in `words`. A sentence says what to do next and never holds an account, a subject, an id, a secret or
a provider's words; its few placeholders are words of our own configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from oauthbroker.core.words import LOCALES, SENTENCES, Locale, known_locale

__all__ = ["LOCALES", "BrokerError", "Code", "ConfigCauseError", "Locale", "known_code", "known_locale", "place_of"]

_RETRY = True


class Code(StrEnum):
    """One code per meaning: the word that callers see, its HTTP status, and whether the same call may succeed later."""

    _value_: str
    status: int
    retryable: bool

    def __new__(cls, word: str, status: int = 0, retryable: bool = False) -> Self:  # noqa: FBT001, FBT002 (a row)
        code = str.__new__(cls, word)
        code._value_, code.status, code.retryable = word, status, retryable
        return code

    def sentence(self, locale: Locale = "en") -> str:
        """Return what the code says in that language, with its placeholders; in English for an unknown language."""
        return SENTENCES.get(locale, SENTENCES["en"])["errors"][self.value]

    OAUTH_APP_NOT_FOUND = "oauthAppNotFound", 404
    SUBJECT_UNAVAILABLE = "subjectUnavailable", 409
    ACCOUNT_REQUIRED = "accountRequired", 409
    ACCOUNT_FORBIDDEN = "accountForbidden", 403
    ACCOUNTS_INVALID = "accountsInvalid", 400
    SCOPE_NOT_ALLOWED = "scopeNotAllowed", 403
    APP_FORBIDDEN = "appForbidden", 403
    NOT_ALLOWED = "notAllowed", 403
    REQUEST_INVALID = "requestInvalid", 400
    MIN_TTL_UNSATISFIABLE = "minTtlUnsatisfiable", 409
    DEVICE_CODE_UNSUPPORTED = "deviceCodeUnsupported", 400
    CONFIG_INVALID = "configInvalid", 500
    CALLBACK_MALFORMED = "callbackMalformed", 400
    STATE_UNKNOWN = "stateUnknown", 400
    STATE_EXPIRED = "stateExpired", 400
    STATE_USED = "stateUsed", 409
    APP_MISMATCH = "appMismatch", 400
    ISSUER_MISMATCH = "issuerMismatch", 400
    OWNER_BINDING_FAILED = "ownerBindingFailed", 403
    PROVIDER_DENIED = "providerDenied", 403
    ADMIN_CONSENT_NEEDED = "adminConsentNeeded", 403
    INTERACTION_NEEDED = "interactionNeeded", 403
    CONNECTION_UNFINISHED = "connectionUnfinished", 409
    CALLBACK_FACT_INVALID = "callbackFactInvalid", 502
    EXCHANGE_FAILED = "exchangeFailed", 502
    EXCHANGE_UNCERTAIN = "exchangeUncertain", 504
    TOKEN_RESPONSE_INVALID = "tokenResponseInvalid", 502
    TOKEN_UNCHANGED = "tokenUnchanged", 502
    ID_TOKEN_INVALID = "idTokenInvalid", 502
    CREDENTIAL_REFUSED = "credentialRefused", 403
    CREDENTIAL_UNCHECKED = "credentialUnchecked", 503, _RETRY
    SUBJECT_MISMATCH = "subjectMismatch", 403
    SUBJECT_UNVERIFIABLE = "subjectUnverifiable", 502
    SUBJECT_FORBIDDEN = "subjectForbidden", 403
    SCOPE_INSUFFICIENT = "scopeInsufficient", 403
    SCOPE_EXCEEDED = "scopeExceeded", 502
    REAUTH_REQUIRED = "reauthRequired", 409
    REFRESH_IN_PROGRESS = "refreshInProgress", 503, _RETRY
    REFRESH_REFUSED = "refreshRefused", 503, _RETRY
    REFRESH_UNCERTAIN = "refreshUncertain", 409
    APP_MISCONFIGURED = "appMisconfigured", 500
    MCP_METADATA_MISSING = "mcpMetadataMissing", 500
    MCP_PKCE_MISSING = "mcpPkceMissing", 500
    MCP_REGISTRATION_NEEDED = "mcpRegistrationNeeded", 500
    MCP_UNSUPPORTED = "mcpUnsupported", 500
    FACT_MISSING = "factMissing", 503, _RETRY
    PROVIDER_UNREACHABLE = "providerUnreachable", 503, _RETRY
    OUTGOING_PROXY_REFUSED = "outgoingProxyRefused", 503, _RETRY
    PROVIDER_RATE_LIMITED = "providerRateLimited", 429, _RETRY
    STORE_LOCKED = "storeLocked", 503, _RETRY
    STORE_UNAVAILABLE = "storeUnavailable", 503, _RETRY
    AUDIT_UNAVAILABLE = "auditUnavailable", 503, _RETRY
    AUDIT_CHANGED = "auditChanged", 500
    STORE_PERMISSIONS = "storePermissions", 500
    STORE_CLOSED = "storeClosed", 500
    STORE_FORMAT = "storeFormat", 500
    STORE_ROLLED_BACK = "storeRolledBack", 500
    RECORD_CORRUPT = "recordCorrupt", 500
    RECORD_MISPLACED = "recordMisplaced", 500
    KEY_UNKNOWN = "keyUnknown", 500
    KEY_MISMATCH = "keyMismatch", 500
    KEY_EXISTS = "keyExists", 409
    UNAUTHENTICATED = "unauthenticated", 401
    TURN_ENDED = "turnEnded", 401
    LEASE_LOST = "leaseLost", 409
    IDEMPOTENCY_CONFLICT = "idempotencyConflict", 409
    AGENT_FORWARDED = "agentForwarded", 409
    GRANT_NOT_FOUND = "grantNotFound", 404
    NOT_FOUND = "notFound", 404
    METHOD_NOT_ALLOWED = "methodNotAllowed", 405
    UNSUPPORTED_MEDIA_TYPE = "unsupportedMediaType", 415
    REQUEST_TOO_LARGE = "requestTooLarge", 413
    REQUEST_TIMEOUT = "requestTimeout", 408, _RETRY
    SERVER_BUSY = "serverBusy", 503, _RETRY
    RATE_LIMITED = "rateLimited", 429, _RETRY
    HOST_NOT_ALLOWED = "hostNotAllowed", 421
    TOKEN_INJECTED_ONLY = "tokenInjectedOnly", 403
    API_NOT_DECLARED = "apiNotDeclared", 403
    API_HOST_FORBIDDEN = "apiHostForbidden", 403
    API_METHOD_FORBIDDEN = "apiMethodForbidden", 403
    API_PATH_FORBIDDEN = "apiPathForbidden", 403
    BODY_NOT_REPEATABLE = "bodyNotRepeatable", 409
    BROKER_UNREACHABLE = "brokerUnreachable", 503, _RETRY
    BROKER_ANSWER_INVALID = "brokerAnswerInvalid", 502


def known_code(word: str) -> Code | None:
    """Return the code of that word, or None: a newer broker may know more."""
    return _CODES.get(word)


_CODES = {code.value: code for code in Code}


class BrokerError(Exception):
    """The only exception the broker raises on purpose.

    `words` fill the placeholders of the message and are words of our configuration (a mode, an app's name) or the one
    that the caller sent in place of such a word, never data of a person or a provider. `note` is for the operator's
    log, and for the caller of `requestInvalid`: a short fixed phrase, same rule.
    `errors`, of a client's refused request, are its wrong members as the API names them: `pointer` and `problem`.
    `hint` names the sentence that stands in place of the code's own: it knows more of this case. `sentence` is one
    that is written already, as by another process.
    `lasting` says that a person has to mend the cause: a later start with the same settings fails in the same way.
    """

    errors: tuple[Mapping[str, str], ...] = ()
    hint: str = ""
    sentence: str = ""

    def __init__(
        self,
        code: Code,
        *,
        note: str = "",
        retry_after_seconds: int | None = None,
        lasting: bool = False,
        **words: str,
    ) -> None:
        code = Code(code)  # a copy or an unpickled one arrives as its args, which hold the plain word
        super().__init__(code.value)
        self.code = code
        self.note = note
        self.lasting = lasting
        self.retry_after_seconds = retry_after_seconds
        self.words = words

    @property
    def retryable(self) -> bool:
        """Tell whether the same call may go well later, by the code alone."""
        return self.code.retryable

    @property
    def is_temporary(self) -> bool:
        """Tell whether a later start or try may go well without a person."""
        return self.retryable and not self.lasting

    @property
    def status(self) -> int:
        """The HTTP status that fits the code."""
        return self.code.status

    def message(self, locale: Locale = "en") -> str:
        """Return the sentence for a person or a model."""
        if self.sentence:
            return self.sentence
        hint = self.hint or ("storeBroken" if self.lasting and self.code is Code.STORE_UNAVAILABLE else "")
        pattern = SENTENCES.get(locale, SENTENCES["en"])["hints"][hint] if hint else self.code.sentence(locale)
        return pattern.format(**{"mode": "?", "fact": "?", **self.words})

    def explained(self, locale: Locale = "en") -> str:
        """Return the sentence for a caller. Where `requestInvalid` has only its general one, its note names the
        fault."""
        is_bare = self.code is Code.REQUEST_INVALID and self.note and not (self.hint or self.sentence)
        return self.message(locale) + (f" ({self.note})" if is_bare else "")

    def __str__(self) -> str:
        if self.lasting and self.note:  # the cause first: it has to be mended
            return f"{self.code.value}: {self.note}. {self.message()}"
        return f"{self.code.value}: {self.message()}" + (f" ({self.note})" if self.note else "")


class ConfigCauseError(BrokerError):
    """`configInvalid` for what `oauthbroker check` does not look at: the sentence is the cause alone."""

    def __init__(self, cause: str) -> None:
        super().__init__(Code.CONFIG_INVALID)
        self.sentence = cause


class WrongCallError(BrokerError):
    """`requestInvalid` for a program that calls with a value that can never be right. It names the argument alone."""

    def __init__(self, argument: str, wanted: str) -> None:
        super().__init__(Code.REQUEST_INVALID)
        self.sentence = f"The argument `{argument}` has a wrong value. Pass {wanted}."


def check_argument(is_right: object, argument: str, wanted: str) -> None:
    """Raise `requestInvalid` with what to pass, unless the argument is right."""
    if not is_right:
        raise WrongCallError(argument, wanted)


def place_of(fault: BaseException, *, below: str = "") -> str:
    """`module.function:line` of the innermost frame of ours, else of the innermost one at all: what a log may say of an
    exception whose text may hold anything. `below` is the module of a fence, which is no place of a fault."""
    place, ours, traceback = "?", False, fault.__traceback__
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "?")
        own = module.startswith("oauthbroker.") and module != below
        if own or not ours:
            place = f"{module}.{traceback.tb_frame.f_code.co_qualname}:{traceback.tb_lineno}"
        ours = ours or own
        traceback = traceback.tb_next
    return place
