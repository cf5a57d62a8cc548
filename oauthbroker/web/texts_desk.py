"""Every word that the pages of people and operators share, and those of `/connections`, in English and Korean."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.errors import Locale


@dataclass(frozen=True, slots=True)
class DeskTexts:
    """One language. `{names}` in braces are filled with escaped, direction-isolated words."""

    skip: str
    just_now: str
    minutes_ago: str
    hours_ago: str
    days_ago: str
    soon: str
    in_minutes: str
    in_hours: str
    in_days: str
    never: str
    nobody: str
    imported: str
    leave: str
    back: str
    brand: str
    open_title: str
    open_lead: str
    open_note: str
    open_hint: str
    open_button: str
    unopened_title: str
    unopened_lead: str
    closed_title: str
    closed_lead: str
    left_title: str
    left_lead: str
    title: str
    lead: str
    title_said: str
    waiting_lead: str
    waiting_button: str
    waiting_until: str
    connected_none: str
    connected_none_lead: str
    label_account: str
    label_for: str
    personal: str
    shared: str
    label_asked: str
    label_used: str
    used_by: str
    used_first: str
    label_since: str
    scopes: str
    state_waiting: str
    state_alive: str
    state_until: str
    state_ending: str
    state_again: str
    disconnect: str
    switch: str
    again: str
    disconnect_title: str
    disconnect_lead: str
    disconnect_shared: str
    disconnect_then: str
    disconnect_untold: str
    disconnect_button: str
    keep_button: str
    done_disconnected: str


EN = DeskTexts(
    skip="Skip to the content",
    just_now="just now",
    minutes_ago="{count} min ago",
    hours_ago="{count} h ago",
    days_ago="{count} days ago",
    soon="in a moment",
    in_minutes="in {count} min",
    in_hours="in {count} h",
    in_days="in {count} days",
    never="not yet",
    nobody="unknown",
    imported="imported",
    leave="Leave",
    back="Back",
    brand="Connections",
    open_title="See what is connected for you",
    open_lead="This link was made for you. It works once, and for ten minutes.",
    open_note="Only go on if you asked for this link yourself, just now.",
    open_hint="You can look at each connection, end it, or switch its account. No page of ours asks for a password.",
    open_button="Show my connections",
    unopened_title="This page opens by a link from your conversation",
    unopened_lead="Ask there for a link to your connections. If you had this page open, it has closed by now.",
    closed_title="This page has closed",
    closed_lead="You were away for a while, or have left. Ask for a new link in your conversation.",
    left_title="You have left",
    left_lead="Nobody can use this page now without a new link. You can close it.",
    title="What is connected for you",
    lead="Agents use these services for you. Whatever you end here, they can no longer use.",
    title_said="{name}, called so by its runtime",
    waiting_lead="{agent} is asking for access.",
    waiting_button="Look at {app}",
    waiting_until="The request ends {when}.",
    connected_none="Nothing is connected",
    connected_none_lead="When an agent needs one of your accounts, it asks you in your conversation.",
    label_account="Account",
    label_for="For",
    personal="only you",
    shared="everybody the agent works for",
    label_asked="Asked for by",
    label_used="Used last",
    used_by="by {agent}",
    used_first="first {when} by {agent}",
    label_since="Connected",
    scopes="What it may do ({count})",
    state_waiting="Waits for you",
    state_alive="Works",
    state_until="Works, ends {when}",
    state_ending="Ends {when}",
    state_again="Needs you again",
    disconnect="Disconnect",
    switch="Switch account",
    again="Connect again",
    disconnect_title="Disconnect {app}?",
    disconnect_lead="Agents can no longer use {app} for you, from this moment on.",
    disconnect_shared="This connection is shared: it ends for everybody.",
    disconnect_then="The service is told that access has ended. Nothing that agents made there is deleted.",
    disconnect_untold="This service cannot be told. To end the access there too, remove it in your account's settings.",
    disconnect_button="Disconnect",
    keep_button="Keep it",
    done_disconnected="Disconnected. Agents can no longer use it.",
)

KO = DeskTexts(
    skip="본문으로 건너뛰기",
    just_now="방금",
    minutes_ago="{count}분 전",
    hours_ago="{count}시간 전",
    days_ago="{count}일 전",
    soon="잠시 후",
    in_minutes="{count}분 후",
    in_hours="{count}시간 후",
    in_days="{count}일 후",
    never="아직 없음",
    nobody="알 수 없음",
    imported="가져옴",
    leave="나가기",
    back="뒤로",
    brand="연결 관리",
    open_title="내 연결 보기",
    open_lead="본인만을 위한 링크입니다. 10분 안에 한 번만 사용할 수 있습니다.",
    open_note="방금 직접 요청한 링크인 경우에만 계속하십시오.",
    open_hint="연결을 확인하고, 해제하거나, 다른 계정으로 바꿀 수 있습니다. 이 페이지는 비밀번호를 묻지 않습니다.",
    open_button="내 연결 보기",
    unopened_title="이 페이지는 대화에서 받은 링크로 열립니다",
    unopened_lead="대화에서 연결 페이지 링크를 요청하십시오. 페이지를 열어 두셨다면 지금은 닫힌 상태입니다.",
    closed_title="페이지가 닫혔습니다",
    closed_lead="시간이 지났거나 페이지에서 나갔습니다. 대화에서 새 링크를 요청하십시오.",
    left_title="페이지에서 나갔습니다",
    left_lead="이제 새 링크 없이는 아무도 이 페이지를 사용할 수 없습니다. 창을 닫아도 됩니다.",
    title="내게 연결된 서비스",
    lead="에이전트가 나를 위해 사용하는 서비스입니다. 여기서 해제하면 더 이상 사용할 수 없습니다.",
    title_said="{name}, 이름은 런타임이 알려 줌",
    waiting_lead="{agent} 에이전트가 사용을 요청합니다.",
    waiting_button="{app} 확인",
    waiting_until="요청 만료: {when}",
    connected_none="연결된 서비스가 없습니다",
    connected_none_lead="에이전트가 계정이 필요하면 대화에서 요청합니다.",
    label_account="계정",
    label_for="대상",
    personal="나만",
    shared="에이전트를 쓰는 모두",
    label_asked="요청자",
    label_used="최근 사용",
    used_by="사용자: {agent}",
    used_first="처음 사용 {when}, {agent}",
    label_since="연결",
    scopes="허용되는 작업 ({count})",
    state_waiting="동의 대기",
    state_alive="정상",
    state_until="정상, {when} 종료",
    state_ending="{when} 종료",
    state_again="다시 동의 필요",
    disconnect="연결 해제",
    switch="계정 변경",
    again="다시 연결",
    disconnect_title="{app} 연결을 해제할까요?",
    disconnect_lead="지금부터 에이전트가 나를 위해 {app:을/를} 사용할 수 없습니다.",
    disconnect_shared="공용 연결이므로 모두에게서 해제됩니다.",
    disconnect_then="서비스에 접근이 끝났음을 알립니다. 에이전트가 그곳에 만든 것은 삭제되지 않습니다.",
    disconnect_untold="이 서비스에는 알릴 방법이 없습니다. 서비스의 계정 설정에서도 접근을 제거하십시오.",
    disconnect_button="연결 해제",
    keep_button="유지",
    done_disconnected="연결이 해제되었습니다. 에이전트가 더 이상 사용할 수 없습니다.",
)

DESK: dict[Locale, DeskTexts] = {"en": EN, "ko": KO}
