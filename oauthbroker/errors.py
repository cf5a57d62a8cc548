"""Every error the broker can answer: one table, one exception.

A message is a fixed sentence that says what to do next. It never holds an account, a subject, an id, a
secret or a provider's words; the few placeholders are words of our own configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Locale = Literal["en", "ko"]


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


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code says in each language, whether asking again later can help, and its HTTP status."""

    status: int
    retryable: bool
    en: str
    ko: str


_FINAL, _RETRY = False, True

MEANINGS: dict[Code, Meaning] = {
    Code.OAUTH_APP_NOT_FOUND: Meaning(
        404,
        _FINAL,
        "No OAuthApp of that name is configured. Check oauthAppRef against the bundle.",
        "해당 이름의 OAuthApp 이 구성되어 있지 않습니다. oauthAppRef 를 번들과 비교해 확인하십시오.",
    ),
    Code.SUBJECT_UNAVAILABLE: Meaning(
        409,
        _FINAL,
        "turn.auth.subjects.{mode} is missing, so no token can be looked up. Start the turn with that subject.",
        "turn.auth.subjects.{mode} 가 없어 토큰을 조회할 수 없습니다. 해당 subject 를 가진 Turn 으로 다시 시작하십시오.",
    ),
    Code.SCOPE_NOT_ALLOWED: Meaning(
        403,
        _FINAL,
        "A requested scope is not allowed here. Ask only for scopes that the OAuthApp and the tool declare.",
        "허용되지 않은 스코프가 요청되었습니다. OAuthApp 과 도구에 선언된 스코프만 요청하십시오.",
    ),
    Code.APP_FORBIDDEN: Meaning(
        403,
        _FINAL,
        "This tool has not declared that OAuthApp. Add it to the tool's spec.auth.oauthAppRef.",
        "이 도구는 해당 OAuthApp 을 선언하지 않았습니다. 도구의 spec.auth.oauthAppRef 에 추가하십시오.",
    ),
    Code.NOT_ALLOWED: Meaning(
        403,
        _FINAL,
        "This call is not for this kind of caller. Use a turn token or a key with the role that the call is for.",
        "이 호출은 이 호출자에게 허용되지 않습니다. 호출에 맞는 역할의 키 또는 Turn 토큰을 사용하십시오.",
    ),
    Code.REQUEST_INVALID: Meaning(
        400,
        _FINAL,
        "The request does not have the expected form. Send only the fields that the call has, each in its own form.",
        "요청 형식이 올바르지 않습니다. 호출에 정의된 필드만 올바른 형식으로 보내십시오.",
    ),
    Code.MIN_TTL_UNSATISFIABLE: Meaning(
        409,
        _FINAL,
        "The provider issues shorter-lived tokens than minTtlSeconds asks for. Ask for a shorter time.",
        "공급자가 발급하는 토큰의 수명이 minTtlSeconds 보다 짧습니다. 더 짧은 값으로 요청하십시오.",
    ),
    Code.DEVICE_CODE_UNSUPPORTED: Meaning(
        400,
        _FINAL,
        "This OAuthApp cannot use the device code flow: it lacks a device endpoint or an owner check. Use another flow.",
        "이 OAuthApp 은 디바이스 endpoint 나 owner 확인이 없어 디바이스 코드 플로우를 쓸 수 없습니다. 다른 flow 를 사용하십시오.",
    ),
    Code.CONFIG_INVALID: Meaning(
        500,
        _FINAL,
        "The configuration was refused. Run `oauthbroker check` and mend what it lists.",
        "구성이 거부되었습니다. `oauthbroker check` 를 실행하여 표시된 항목을 수정하십시오.",
    ),
    Code.CALLBACK_MALFORMED: Meaning(
        400,
        _FINAL,
        "The answer from the service was not readable. Start again from the link in your conversation.",
        "서비스의 응답을 읽을 수 없습니다. 대화에 있는 링크에서 다시 시작하십시오.",
    ),
    Code.STATE_UNKNOWN: Meaning(
        400,
        _FINAL,
        "This link is not valid any more. Go back to your conversation and ask for a new one.",
        "이 링크는 더 이상 유효하지 않습니다. 대화로 돌아가 새 링크를 요청하십시오.",
    ),
    Code.STATE_EXPIRED: Meaning(
        400,
        _FINAL,
        "This link has expired. Go back to your conversation and ask for a new one.",
        "이 링크는 만료되었습니다. 대화로 돌아가 새 링크를 요청하십시오.",
    ),
    Code.STATE_USED: Meaning(
        409,
        _FINAL,
        "This link was already used. You can close this page; ask for a new link if something is missing.",
        "이미 사용된 링크입니다. 이 페이지를 닫아도 됩니다. 문제가 있으면 새 링크를 요청하십시오.",
    ),
    Code.APP_MISMATCH: Meaning(
        400,
        _FINAL,
        "The answer arrived at the wrong place. Start again from the link in your conversation.",
        "응답이 잘못된 위치로 도착했습니다. 대화에 있는 링크에서 다시 시작하십시오.",
    ),
    Code.ISSUER_MISMATCH: Meaning(
        400,
        _FINAL,
        "The answer came from an unexpected service and was refused. Start again from the link in your conversation.",
        "예상하지 못한 서비스의 응답이라 거부되었습니다. 대화에 있는 링크에서 다시 시작하십시오.",
    ),
    Code.OWNER_BINDING_FAILED: Meaning(
        403,
        _FINAL,
        "This connection was started in another browser. Open the link yourself, in this browser, and do not pass it on.",
        "다른 브라우저에서 시작된 연결입니다. 링크를 전달하지 말고 이 브라우저에서 직접 여십시오.",
    ),
    Code.PROVIDER_DENIED: Meaning(
        403,
        _FINAL,
        "Access was not granted. Nothing was connected; ask for a new link if this was a mistake.",
        "접근이 승인되지 않았습니다. 연결된 것은 없으며, 실수였다면 새 링크를 요청하십시오.",
    ),
    Code.EXCHANGE_FAILED: Meaning(
        502,
        _FINAL,
        "The service refused to complete the connection. Ask for a new link and try again.",
        "서비스가 연결 완료를 거부했습니다. 새 링크를 요청하여 다시 시도하십시오.",
    ),
    Code.EXCHANGE_UNCERTAIN: Meaning(
        504,
        _FINAL,
        "The service did not answer completely, so nothing was connected. Ask for a new link and try again.",
        "서비스가 제대로 응답하지 않아 연결되지 않았습니다. 새 링크를 요청하여 다시 시도하십시오.",
    ),
    Code.TOKEN_RESPONSE_INVALID: Meaning(
        502,
        _FINAL,
        "The service's answer was not a valid token response, so nothing was connected. Tell the operator.",
        "서비스의 응답이 올바른 토큰 응답이 아니어서 연결되지 않았습니다. 운영자에게 알려 주십시오.",
    ),
    Code.ID_TOKEN_INVALID: Meaning(
        502,
        _FINAL,
        "The service's proof of identity was not valid, so nothing was connected. Tell the operator.",
        "서비스의 신원 증명이 올바르지 않아 연결되지 않았습니다. 운영자에게 알려 주십시오.",
    ),
    Code.SUBJECT_MISMATCH: Meaning(
        403,
        _FINAL,
        "You signed in with another account than the one that was asked for. Sign in with that one and try again.",
        "승인한 계정이 요청된 계정과 다릅니다. 올바른 계정으로 로그인하여 다시 시도하십시오.",
    ),
    Code.SUBJECT_UNVERIFIABLE: Meaning(
        502,
        _FINAL,
        "The service did not say whose account it is, so nothing was connected. Tell the operator.",
        "서비스가 계정의 소유자를 알려 주지 않아 연결되지 않았습니다. 운영자에게 알려 주십시오.",
    ),
    Code.SUBJECT_FORBIDDEN: Meaning(
        403,
        _FINAL,
        "This account may not connect the service for everybody. Ask one of its authorizers to open the link.",
        "이 계정은 모두를 위해 서비스를 연결할 수 없습니다. 승인 권한이 있는 사람에게 링크를 열어 달라고 하십시오.",
    ),
    Code.SCOPE_INSUFFICIENT: Meaning(
        403,
        _FINAL,
        "Fewer scopes were granted than this call needs. Ask for less, or have the missing ones granted.",
        "승인된 스코프가 이 호출에 필요한 것보다 적습니다. 더 적게 요청하거나 필요한 스코프를 승인받으십시오.",
    ),
    Code.SCOPE_EXCEEDED: Meaning(
        502,
        _FINAL,
        "The service granted more than the OAuthApp allows, so nothing was connected. Tell the operator.",
        "서비스가 OAuthApp 이 허용하는 것보다 많은 권한을 부여하여 연결되지 않았습니다. 운영자에게 알려 주십시오.",
    ),
    Code.REAUTH_REQUIRED: Meaning(
        409,
        _FINAL,
        "The connection has ended at the service. Ask the person to connect again.",
        "서비스와의 연결이 끝났습니다. 다시 연결해 달라고 요청하십시오.",
    ),
    Code.REFRESH_IN_PROGRESS: Meaning(
        503,
        _RETRY,
        "The token is being renewed by somebody else. Ask again shortly.",
        "다른 곳에서 토큰을 갱신하고 있습니다. 잠시 후 다시 요청하십시오.",
    ),
    Code.REFRESH_UNCERTAIN: Meaning(
        409,
        _FINAL,
        "The service's answer to a renewal was lost. Ask the person to connect again.",
        "갱신에 대한 서비스의 응답이 유실되었습니다. 다시 연결해 달라고 요청하십시오.",
    ),
    Code.APP_MISCONFIGURED: Meaning(
        500,
        _FINAL,
        "The provider refuses this OAuthApp's client. The operator must check its client id, secret and endpoints.",
        "공급자가 이 OAuthApp 의 클라이언트를 거부합니다. 운영자가 client id, secret, endpoint 를 확인해야 합니다.",
    ),
    Code.PROVIDER_UNREACHABLE: Meaning(
        503,
        _RETRY,
        "The provider does not answer right now. Ask again later.",
        "지금은 공급자가 응답하지 않습니다. 나중에 다시 요청하십시오.",
    ),
    Code.PROVIDER_RATE_LIMITED: Meaning(
        429,
        _RETRY,
        "The provider asks to slow down. Ask again after retryAfterSeconds.",
        "공급자가 요청 속도를 제한하고 있습니다. retryAfterSeconds 이후에 다시 요청하십시오.",
    ),
    Code.STORE_LOCKED: Meaning(
        503,
        _RETRY,
        "The record is locked by another process. Ask again shortly.",
        "다른 프로세스가 레코드를 잠그고 있습니다. 잠시 후 다시 요청하십시오.",
    ),
    Code.STORE_UNAVAILABLE: Meaning(
        503,
        _RETRY,
        "The store cannot be read or written right now. The operator must check disk space and mounts.",
        "지금은 저장소를 읽거나 쓸 수 없습니다. 운영자가 디스크 공간과 마운트를 확인해야 합니다.",
    ),
    Code.AUDIT_UNAVAILABLE: Meaning(
        503,
        _RETRY,
        "The audit log does not take entries right now. The operator must check disk space and mounts.",
        "지금은 감사 로그에 기록할 수 없습니다. 운영자가 디스크 공간과 마운트를 확인해야 합니다.",
    ),
    Code.STORE_PERMISSIONS: Meaning(
        500,
        _FINAL,
        "The store or a key file can be reached by others, or is not a plain file. Mend its owner and mode (0700, 0600).",
        "저장소나 키 파일에 다른 사용자가 접근할 수 있거나 일반 파일이 아닙니다. 소유자와 권한(0700, 0600)을 고치십시오.",
    ),
    Code.STORE_ROLLED_BACK: Meaning(
        500,
        _FINAL,
        "The store is older than it was. The operator must accept the restored copy before it is used.",
        "저장소가 이전 상태로 되돌아갔습니다. 운영자가 복원된 사본을 승인해야 사용할 수 있습니다.",
    ),
    Code.RECORD_CORRUPT: Meaning(
        500,
        _FINAL,
        "A stored record is damaged and was set aside. Connect again, or restore the record from a backup.",
        "저장된 레코드가 손상되어 따로 보관되었습니다. 다시 연결하거나 백업에서 복원하십시오.",
    ),
    Code.RECORD_MISPLACED: Meaning(
        500,
        _FINAL,
        "A stored record lies in a place it was not written for. Restore the store from a backup.",
        "저장된 레코드가 원래 위치가 아닌 곳에 있습니다. 백업에서 저장소를 복원하십시오.",
    ),
    Code.KEY_UNKNOWN: Meaning(
        500,
        _FINAL,
        "No key is at hand for this store. Provide the key file it was made with; nothing was changed.",
        "이 저장소에 대한 키가 없습니다. 저장소를 만들 때 사용한 키 파일을 제공하십시오. 변경된 것은 없습니다.",
    ),
    Code.KEY_MISMATCH: Meaning(
        500,
        _FINAL,
        "The key does not fit this store. Provide the key file it was made with; nothing was changed.",
        "키가 이 저장소와 맞지 않습니다. 저장소를 만들 때 사용한 키 파일을 제공하십시오. 변경된 것은 없습니다.",
    ),
    Code.KEY_EXISTS: Meaning(
        409,
        _FINAL,
        "A key or a store is already there and is never overwritten. Nothing was changed; remove it yourself to start anew.",
        "키 또는 저장소가 이미 있으며 덮어쓰지 않습니다. 변경된 것은 없습니다. 새로 시작하려면 직접 제거하십시오.",
    ),
    Code.UNAUTHENTICATED: Meaning(
        401,
        _FINAL,
        "The caller is not known. Send a valid token.",
        "호출자를 확인할 수 없습니다. 유효한 토큰을 보내십시오.",
    ),
    Code.TURN_ENDED: Meaning(
        401,
        _FINAL,
        "The turn is over. Ask the runtime to start a new one.",
        "Turn 이 종료되었습니다. 런타임에 새 Turn 을 요청하십시오.",
    ),
    Code.LEASE_LOST: Meaning(
        409,
        _FINAL,
        "The lease of this event has ended, or it was settled already. Ask for the next event.",
        "이 이벤트의 lease 가 끝났거나 이미 처리되었습니다. 다음 이벤트를 요청하십시오.",
    ),
    Code.GRANT_NOT_FOUND: Meaning(
        404,
        _FINAL,
        "There is no grant of that id that could be ended. Check the id against the list of grants.",
        "해당 id 의 종료할 수 있는 grant 가 없습니다. grant 목록과 비교해 확인하십시오.",
    ),
    Code.NOT_FOUND: Meaning(
        404,
        _FINAL,
        "There is nothing at this address. Check its path, and the version of the broker.",
        "이 주소에는 아무것도 없습니다. 경로와 브로커의 버전을 확인하십시오.",
    ),
    Code.METHOD_NOT_ALLOWED: Meaning(
        405,
        _FINAL,
        "This address does not take that method. Use one that the Allow header names.",
        "이 주소는 해당 메서드를 받지 않습니다. Allow 헤더에 있는 메서드를 사용하십시오.",
    ),
    Code.UNSUPPORTED_MEDIA_TYPE: Meaning(
        415,
        _FINAL,
        "The request's body is not labelled as JSON. Send it as application/json.",
        "요청 본문이 JSON 으로 표시되지 않았습니다. application/json 으로 보내십시오.",
    ),
    Code.REQUEST_TOO_LARGE: Meaning(
        413,
        _FINAL,
        "The request is too large. Send less.",
        "요청이 너무 큽니다. 더 작게 보내십시오.",
    ),
    Code.REQUEST_TIMEOUT: Meaning(
        408,
        _RETRY,
        "The request took too long. Send it again, without pauses.",
        "요청에 시간이 너무 오래 걸렸습니다. 끊김 없이 다시 보내십시오.",
    ),
    Code.SERVER_BUSY: Meaning(
        503,
        _RETRY,
        "The broker has all the connections it takes. Ask again later.",
        "브로커의 연결이 모두 사용 중입니다. 나중에 다시 요청하십시오.",
    ),
    Code.RATE_LIMITED: Meaning(
        429,
        _RETRY,
        "Too many calls, open requests for access, or reports of rejected tokens. Finish or cancel one, or ask again later.",
        "호출, 열려 있는 승인 요청 또는 거부된 토큰 신고가 너무 많습니다. 하나를 완료하거나 취소하고 나중에 다시 요청하십시오.",
    ),
    Code.HOST_NOT_ALLOWED: Meaning(
        421,
        _FINAL,
        "This host name is not served here. Use the broker's public address.",
        "이 호스트 이름은 여기서 제공되지 않습니다. 브로커의 공개 주소를 사용하십시오.",
    ),
    Code.BROKER_UNREACHABLE: Meaning(
        503,
        _RETRY,
        "The token broker does not answer right now. Ask again later.",
        "지금은 토큰 브로커가 응답하지 않습니다. 나중에 다시 요청하십시오.",
    ),
    Code.BROKER_ANSWER_INVALID: Meaning(
        502,
        _FINAL,
        "What answered is not a token broker that this client understands. Check its address, and both versions.",
        "이 클라이언트가 이해할 수 있는 토큰 브로커의 응답이 아닙니다. 주소와 양쪽 버전을 확인하십시오.",
    ),
}


class BrokerError(Exception):
    """The only exception the broker raises on purpose.

    `words` fill the placeholders of the message and are words of our configuration (a mode, an app's name),
    never data of a person or a provider. `note` is for the operator's log: a short fixed phrase, same rule.
    """

    def __init__(self, code: Code, *, note: str = "", retry_after_seconds: int | None = None, **words: str) -> None:
        code = Code(code)  # a copy or an unpickled one arrives as its args, which hold the plain word
        super().__init__(code.value)
        self.code = code
        self.note = note
        self.retry_after_seconds = retry_after_seconds
        self.words = words

    @property
    def retryable(self) -> bool:
        return MEANINGS[self.code].retryable

    @property
    def status(self) -> int:
        """The HTTP status that fits the code."""
        return MEANINGS[self.code].status

    def message(self, locale: Locale = "en") -> str:
        """The sentence for a person or a model, in `en` or `ko`."""
        meaning = MEANINGS[self.code]
        text = meaning.ko if locale == "ko" else meaning.en
        return text.format(**{"mode": "?", **self.words})

    def __str__(self) -> str:
        return f"{self.code.value}: {self.message()}" + (f" ({self.note})" if self.note else "")
