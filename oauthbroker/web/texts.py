"""Every word on our pages in English and Korean, and which of the two a browser reads."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.errors import Locale


@dataclass(frozen=True, slots=True)
class Texts:
    """One language. `{names}` in braces are filled with escaped, direction-isolated words by `pages`."""

    connect_title: str
    connect_lead: str
    label_agent: str
    title_said: str
    label_subject: str
    subject_shared: str
    subject_personal: str
    label_host: str
    expiry: str
    scopes_heading: str
    scopes_none: str
    scopes_more: str
    warning: str
    login_hint: str
    password_hint: str
    device_hint: str
    continue_button: str
    decline_button: str
    device_title: str
    device_lead: str
    device_warning: str
    device_code_label: str
    device_way: str
    device_type: str
    device_compare: str
    device_open: str
    device_scan: str
    device_waiting: str
    check_button: str
    code_title: str
    code_lead: str
    code_label: str
    code_warning: str
    code_waiting: str
    runtime_title: str
    runtime_lead: str
    finishing_title: str
    finishing_lead: str
    login_wrong_title: str
    login_wrong_lead: str
    login_wrong_hint: str
    again_expected: str
    again_hint: str
    again_button: str
    code_over_title: str
    code_over_lead: str
    code_over_hint: str
    code_over_button: str
    private_title: str
    private_lead: str
    private_hint: str
    leaving_title: str
    leaving_lead: str
    leaving_link: str
    connected_title: str
    connected_title_plain: str
    connected_lead: str
    label_account: str
    done_link: str
    denied_title: str
    denied_lead: str
    failed_title: str
    failed_lead: str
    expired_title: str
    expired_lead: str
    missing_title: str
    missing_lead: str
    reference: str
    footer: str
    support: str


EN = Texts(
    connect_title="Connect {app}?",
    connect_lead="{agent} is asking for access to {app}. Nothing happens until you agree.",
    label_agent="Who asks",
    title_said="{name}, called so by its runtime",
    label_subject="For",
    subject_shared="Shared: for everybody the agent works for",
    subject_personal="Personal: only when the agent works for you",
    label_host="Sign in at",
    expiry="in {minutes} min ({time} UTC)",
    scopes_heading="What it may do",
    scopes_none="Only what the service gives every app",
    scopes_more="and {count} more",
    warning="Only continue if you started this yourself. If another person sent you this link, cancel.",
    login_hint="First you sign in at {host}, so that only you can connect it for you.",
    password_hint="This page never asks for a password. The link expires {expiry}.",
    device_hint="This page never asks for a password. The code expires {expiry}.",
    continue_button="Continue to {provider}",
    decline_button="Cancel",
    device_title="Connect {app} with a code",
    device_lead="{agent} is asking for access to {app}. You agree at the service itself.",
    device_warning="Only go on if you started this yourself, just now. If another person gave you this code or link, "
    "stop: with your sign-in the agent would work for them.",
    device_code_label="Your code",
    device_way="Enter it here",
    device_type="Sign in at {host}, and type the code when it is asked for.",
    device_compare="Button and QR code take the code along. Check that {host} shows the same one before you agree.",
    device_open="Open {provider}",
    device_scan="Or scan this with your phone. It leads to {host}.",
    device_waiting="Waiting for you to agree at {host}. You may close this page; it says how it went when you check.",
    check_button="Check now",
    code_title="One more step for {app}",
    code_lead="Send this code in the conversation where you got the link. Until then nothing is connected.",
    code_label="Your code",
    code_warning="Send it nowhere else. Nobody may ask you for it, by phone, by mail or in another chat: whoever does "
    "wants your account for an agent of theirs.",
    code_waiting="Waiting for your code. It works for {seconds} s from when this page was shown. Once it is sent, "
    "check here.",
    runtime_title="One more step for {app}",
    runtime_lead="You are being taken back to {host}, which checks that it is you. Until then nothing is connected.",
    finishing_title="Connecting {app}",
    finishing_lead="It is being completed. Check in a few seconds whether it is done.",
    login_wrong_title="Not the right account",
    login_wrong_lead="At {host} you signed in with another account than the one this link is for. "
    "Nothing was connected.",
    login_wrong_hint="If the link is yours, open it again from your conversation, and sign in at {host} with the "
    "account that your agent knows you by. If somebody sent it to you, close this page.",
    again_expected="This link is for {subject}.",
    again_hint="If the service does not ask which account to use, sign out there first. "
    "If another person sent you the link, close this page.",
    again_button="Try another account",
    code_over_title="The code has ended",
    code_over_lead="It was not sent in time, or a wrong one was. Nothing was connected.",
    code_over_hint="You agree at the service once more, and then get a new code. "
    "If another person sent you the link, close this page.",
    code_over_button="Get a new code",
    private_title="Your link was sent to you privately",
    private_lead="It is not in the conversation, so nobody else can open it. Look for a message that only you see.",
    private_hint="If there is none, go back to your conversation and say that you got no link.",
    leaving_title="Taking you to {provider}",
    leaving_lead="You are being sent to {host}. Check that this address is in your browser before you sign in.",
    leaving_link="Continue if nothing happens",
    connected_title="{app} is connected",
    connected_title_plain="Connected",
    connected_lead="You can close this page and go back to your conversation. The agent continues by itself.",
    label_account="Account",
    done_link="See or end your connections",
    denied_title="Nothing was connected",
    denied_lead="You declined, so nothing was stored. You can close this page.",
    failed_title="This did not work",
    failed_lead="Something went wrong here and nothing was connected. Please try again in a while.",
    expired_title="This link no longer works",
    expired_lead="It may have expired or been used before. Go back to your conversation and ask for a new one.",
    missing_title="There is nothing here",
    missing_lead="Open the link from your conversation again, exactly as it was sent to you.",
    reference="If you ask for help, quote {reference}",
    support="Get help",
    footer="Connections are stored encrypted. You can end them at any time.",
)

KO = Texts(
    connect_title="{app} 연결",
    connect_lead="{agent} 에이전트가 {app} 사용을 요청합니다. 동의하기 전에는 아무 일도 일어나지 않습니다.",
    label_agent="요청자",
    title_said="{name}, 이름은 런타임이 알려 줌",
    label_subject="대상",
    subject_shared="공용: 이 에이전트를 쓰는 모두를 위해 사용",
    subject_personal="개인용: 나를 위해 일할 때만 사용",
    label_host="로그인 주소",
    expiry="{minutes}분 후 (UTC {time})",
    scopes_heading="허용되는 작업",
    scopes_none="서비스가 모든 앱에 기본으로 제공하는 권한만",
    scopes_more="외 {count}개",
    warning="직접 시작한 경우에만 계속하십시오. 다른 사람이 보낸 링크라면 취소하십시오.",
    login_hint="먼저 {host} 에 로그인합니다. 본인만 연결할 수 있도록 확인하는 단계입니다.",
    password_hint="이 페이지는 비밀번호를 묻지 않습니다. 링크 만료: {expiry}",
    device_hint="이 페이지는 비밀번호를 묻지 않습니다. 코드 만료: {expiry}",
    continue_button="{provider:으로/로} 계속",
    decline_button="취소",
    device_title="코드로 {app} 연결",
    device_lead="{agent} 에이전트가 {app} 사용을 요청합니다. 동의는 이 기기나 다른 기기에서 해당 서비스에 직접 합니다.",
    device_warning="방금 직접 시작한 경우에만 계속하십시오. 다른 사람이 보낸 코드나 링크라면 중단하십시오. "
    "로그인하면 에이전트가 그 사람을 위해 일하게 됩니다.",
    device_code_label="코드",
    device_way="코드를 입력할 곳",
    device_type="{host} 에 로그인한 뒤, 요청되면 코드를 입력하십시오.",
    device_compare="버튼과 QR 코드에는 코드가 들어 있습니다. {host} 에 같은 코드가 표시되는지 먼저 확인하십시오.",
    device_open="{provider} 열기",
    device_scan="또는 휴대전화로 스캔하십시오. {host} 주소로 연결됩니다.",
    device_waiting="{host} 에서 동의하기를 기다리고 있습니다. "
    "이 페이지는 닫아도 되며, 결과는 아래에서 확인할 수 있습니다.",
    check_button="지금 확인",
    code_title="{app} 연결 마지막 단계",
    code_lead="링크를 받은 대화에 이 코드를 보내 주십시오. 그 전에는 연결되지 않습니다.",
    code_label="코드",
    code_warning="다른 곳에는 보내지 마십시오. 전화, 메일, 다른 대화에서 이 코드를 요구할 수 있는 사람은 없습니다. "
    "요구하는 사람은 내 계정을 자신의 에이전트에 연결하려는 것입니다.",
    code_waiting="코드를 기다리는 중입니다. 이 페이지가 표시된 때부터 {seconds}초 동안 유효합니다. "
    "코드를 보낸 뒤 아래에서 결과를 확인하십시오.",
    runtime_title="{app} 연결 마지막 단계",
    runtime_lead="{host} 주소로 돌아가 본인인지 확인합니다. 그 전에는 연결되지 않습니다.",
    finishing_title="{app} 연결 중",
    finishing_lead="연결을 마무리하고 있습니다. 잠시 후 아래에서 결과를 확인하십시오.",
    login_wrong_title="다른 계정으로 로그인했습니다",
    login_wrong_lead="{host} 에 로그인한 계정이 이 링크를 요청한 계정과 다릅니다. 연결된 것은 없습니다.",
    login_wrong_hint="본인의 링크라면 대화에서 링크를 다시 열고 {host} 에 올바른 계정으로 로그인하십시오. "
    "다른 사람이 보낸 링크라면 이 페이지를 닫으십시오.",
    again_expected="이 링크는 {subject} 계정을 위한 것입니다.",
    again_hint="서비스가 사용할 계정을 묻지 않으면 먼저 그곳에서 로그아웃하십시오. "
    "다른 사람이 보낸 링크라면 이 페이지를 닫으십시오.",
    again_button="다른 계정으로 다시 시도",
    code_over_title="코드가 만료되었습니다",
    code_over_lead="제때 보내지 않았거나 다른 코드를 보냈습니다. 연결된 것은 없습니다.",
    code_over_hint="서비스에서 다시 동의하면 새 코드를 받습니다. 다른 사람이 보낸 링크라면 이 페이지를 닫으십시오.",
    code_over_button="새 코드 받기",
    private_title="링크를 따로 보냈습니다",
    private_lead="다른 사람이 열 수 없도록 대화에는 링크를 남기지 않았습니다. 나에게만 보이는 메시지를 확인하십시오.",
    private_hint="메시지가 없다면 대화로 돌아가 링크를 받지 못했다고 알려 주십시오.",
    leaving_title="{provider:으로/로} 이동 중",
    leaving_lead="{host} 주소로 이동합니다. 로그인하기 전에 브라우저의 주소를 확인하십시오.",
    leaving_link="자동으로 이동하지 않으면 여기를 누르십시오",
    connected_title="{app} 연결 완료",
    connected_title_plain="연결 완료",
    connected_lead="이 페이지를 닫고 대화로 돌아가십시오. 에이전트가 작업을 이어서 진행합니다.",
    label_account="계정",
    done_link="내 연결 보기 또는 해제",
    denied_title="연결되지 않았습니다",
    denied_lead="요청을 거절하셨으며 아무것도 저장되지 않았습니다. 이 페이지를 닫아도 됩니다.",
    failed_title="완료하지 못했습니다",
    failed_lead="문제가 발생하여 연결되지 않았습니다. 잠시 후 다시 시도하십시오.",
    expired_title="사용할 수 없는 링크입니다",
    expired_lead="만료되었거나 이미 사용된 링크일 수 있습니다. 대화로 돌아가 새 링크를 요청하십시오.",
    missing_title="페이지가 없습니다",
    missing_lead="대화에서 받은 링크를 그대로 다시 여십시오.",
    reference="문의할 때 알려 주십시오: {reference}",
    support="도움 받기",
    footer="연결 정보는 암호화되어 보관되며 언제든지 해제할 수 있습니다.",
)

TEXTS: dict[Locale, Texts] = {"en": EN, "ko": KO}


def locale_of(accept_language: str | None, default: Locale) -> Locale:
    """The language of `Accept-Language` (RFC 9110 section 12.5.4) that we speak and the reader likes best.

    Only the primary subtag counts. `default` is the broker's own locale: for no header, `*`, or no common language.
    """
    best: Locale = default
    best_weight = 0.0
    for item in (accept_language or "")[:1000].split(","):
        tag, _, parameter = item.partition(";")
        spoken = _spoken(tag, default)
        weight = _weight(parameter)
        if spoken is not None and weight > best_weight:
            best, best_weight = spoken, weight
    return best


def _spoken(tag: str, default: Locale) -> Locale | None:
    match tag.strip().lower().split("-")[0]:
        case "en":
            return "en"
        case "ko":
            return "ko"
        case "*":
            return default
        case _:
            return None


def _weight(parameter: str) -> float:
    """A qvalue: 1 when there is none, 0 (not wanted) when it cannot be read."""
    name, _, value = parameter.strip().partition("=")
    if not name:
        return 1.0
    digits = value.strip()
    if name.strip().lower() != "q" or not digits.replace(".", "", 1).isdigit() or not digits.isascii():
        return 0.0
    return min(float(digits), 1.0)
