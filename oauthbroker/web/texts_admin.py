"""Every word of the operators' pages, `/admin`, in English and Korean."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.errors import Locale


@dataclass(frozen=True, slots=True)
class AdminTexts:
    """One language. `{names}` in braces are filled with escaped, direction-isolated words."""

    brand: str
    nav: str
    overview: str
    grants: str
    waiting: str
    queues: str
    circuits: str
    audit: str
    leave: str
    left_title: str
    left_lead: str
    login_title: str
    login_lead: str
    login_key: str
    login_hint: str
    login_button: str
    login_wrong: str
    login_role: str
    login_here_lead: str
    login_here: str
    apps_counted: str
    living_counted: str
    config_trouble: str
    col_app: str
    col_state: str
    col_alive: str
    col_again: str
    col_ended: str
    col_failure: str
    col_circuit: str
    light_good: str
    light_warn: str
    light_bad: str
    none: str
    not_configured: str
    circuit_open: str
    no_apps: str
    search: str
    search_hint: str
    filter_app: str
    filter_state: str
    filter_type: str
    all: str
    apply: str
    count: str
    page_of: str
    newer: str
    older: str
    col_subject: str
    agent: str
    event_id: str
    col_agent: str
    col_changed: str
    col_since: str
    state_alive: str
    state_ending: str
    state_again: str
    state_ended: str
    no_grants: str
    grant_title: str
    label_id: str
    label_audit_name: str
    label_provider: str
    label_scopes: str
    label_authorized: str
    label_used: str
    label_until: str
    label_events: str
    label_told: str
    not_told: str
    told: str
    never: str
    revoke: str
    revoke_title: str
    revoke_lead: str
    revoke_button: str
    keep: str
    waiting_lead: str
    col_expires: str
    col_way: str
    way_open: str
    way_left: str
    cancel: str
    no_waiting: str
    queues_lead: str
    col_waiting: str
    col_leased: str
    col_dead: str
    col_oldest: str
    no_queues: str
    dead_heading: str
    dead_lead: str
    col_event: str
    col_address: str
    col_attempts: str
    unreadable: str
    retry: str
    drop: str
    drop_title: str
    drop_lead: str
    drop_button: str
    no_dead: str
    circuits_lead: str
    col_what: str
    what_renewals: str
    what_revocations: str
    what_devices: str
    col_why: str
    col_left: str
    all_grants: str
    one_grant: str
    seconds: str
    no_circuits: str
    audit_lead: str
    col_when: str
    col_type: str
    col_details: str
    forged: str
    no_audit: str
    actions: str
    done_revoked: str
    done_cancelled: str
    done_retried: str
    done_dropped: str
    done_nothing: str


EN = AdminTexts(
    brand="oauthbroker",
    nav="Operations",
    overview="Overview",
    grants="Grants",
    waiting="Waiting",
    queues="Queues",
    circuits="Circuits",
    audit="Audit",
    leave="Sign out",
    left_title="Signed out",
    left_lead="This browser can no longer open the operators' pages.",
    login_title="Operators' entrance",
    login_lead="Sign in with an API key that has the role operator.",
    login_key="API key",
    login_hint="The key is checked and forgotten: neither the cookie nor the store of this visit holds it.",
    login_button="Sign in",
    login_wrong="This is not a key that is valid now.",
    login_role="This key is valid, but not an operator's.",
    login_here_lead="You are on the broker's own machine, and the configuration lets you in without a key.",
    login_here="Come in without a key",
    apps_counted="{count} app|{count} apps",
    living_counted="{count} living grant|{count} living grants",
    config_trouble="The newest configuration was refused, an older one is in use.",
    col_app="App",
    col_state="State",
    col_alive="Alive",
    col_again="To agree again",
    col_ended="Ended",
    col_failure="Last failure",
    col_circuit="Circuit",
    light_good="All well",
    light_warn="Look at it",
    light_bad="Broken",
    none="none",
    not_configured="not configured any more",
    circuit_open="open, {code}",
    no_apps="No app is configured.",
    search="Search",
    search_hint="part of a subject, or a grant id",
    filter_app="App",
    filter_state="State",
    filter_type="Type",
    all="All",
    apply="Show",
    count="{count} found",
    page_of="Page {page} of {pages}",
    newer="Previous page",
    older="Next page",
    col_subject="Subject",
    agent="Agent",
    event_id="Event id",
    col_agent="Asked by",
    col_changed="Changed",
    col_since="Since",
    state_alive="alive",
    state_ending="ends soon",
    state_again="agree again",
    state_ended="ended",
    no_grants="No grant fits.",
    grant_title="Grant of {app}",
    label_id="Grant id",
    label_audit_name="In the audit log",
    label_provider="Provider",
    label_scopes="Scopes",
    label_authorized="Agreed by",
    label_used="Used last",
    label_until="Token ends",
    label_events="Events to send",
    label_told="Provider",
    not_told="still to be told of the end",
    told="has nothing to be told",
    never="not known",
    revoke="Revoke",
    revoke_title="Revoke this grant of {app}?",
    revoke_lead="Tools get no token of it from now on. The provider is told, and the agent that waits hears of it.",
    revoke_button="Revoke",
    keep="Keep it",
    waiting_lead="People who have been asked and have not agreed yet.",
    col_expires="Expires",
    col_way="Way",
    way_open="not opened",
    way_left="on the way",
    cancel="Cancel",
    no_waiting="Nobody is being waited for.",
    queues_lead="Events on their way to agents.",
    col_waiting="Waiting",
    col_leased="Leased",
    col_dead="Dead",
    col_oldest="Oldest",
    no_queues="All queues are empty.",
    dead_heading="Dead letters",
    dead_lead="Events that no consumer could settle. Trying again gives them all their attempts anew.",
    col_event="Event",
    col_address="Address",
    col_attempts="Attempts",
    unreadable="unreadable",
    retry="Try again",
    drop="Drop",
    drop_title="Drop this event for good?",
    drop_lead="Its agent will never hear of it. The grant itself is not touched.",
    drop_button="Drop it",
    no_dead="There are none.",
    circuits_lead="Whom this process leaves in peace for a while, and why. Other workers have circuits of their own.",
    col_what="For",
    what_renewals="renewals",
    what_revocations="revocations",
    what_devices="device codes",
    col_why="Why",
    col_left="Asked again in",
    all_grants="all grants",
    one_grant="one grant",
    seconds="{count} s",
    no_circuits="No circuit is open: every provider is asked.",
    audit_lead="The newest entries, the newest first.",
    col_when="When",
    col_type="Type",
    col_details="Details",
    forged="does not follow the line before it",
    no_audit="No entry fits.",
    actions="Actions",
    done_revoked="The grant has ended.",
    done_cancelled="The request was withdrawn.",
    done_retried="The event will be tried again.",
    done_dropped="The event is gone.",
    done_nothing="There was nothing left to do.",
)

KO = AdminTexts(
    brand="oauthbroker",
    nav="운영",
    overview="개요",
    grants="연결",
    waiting="대기",
    queues="큐",
    circuits="차단기",
    audit="감사",
    leave="로그아웃",
    left_title="로그아웃되었습니다",
    left_lead="이 브라우저로는 더 이상 운영자 페이지를 열 수 없습니다.",
    login_title="운영자 로그인",
    login_lead="operator 역할의 API 키로 로그인하십시오.",
    login_key="API 키",
    login_hint="키는 확인 후 보관하지 않습니다. 쿠키와 저장소 어디에도 남지 않습니다.",
    login_button="로그인",
    login_wrong="지금 유효한 키가 아닙니다.",
    login_role="유효하지만 운영자의 키가 아닙니다.",
    login_here_lead="브로커와 같은 기기에 있으며, 구성에서 키 없이 들어오는 것을 허용합니다.",
    login_here="키 없이 들어가기",
    apps_counted="앱 {count}개",
    living_counted="살아 있는 연결 {count}개",
    config_trouble="최신 구성이 거부되어 이전 구성을 사용하고 있습니다.",
    col_app="앱",
    col_state="상태",
    col_alive="살아 있음",
    col_again="재동의 필요",
    col_ended="종료",
    col_failure="최근 실패",
    col_circuit="차단기",
    light_good="정상",
    light_warn="확인 필요",
    light_bad="고장",
    none="없음",
    not_configured="더 이상 구성되지 않음",
    circuit_open="열림, {code}",
    no_apps="구성된 앱이 없습니다.",
    search="검색",
    search_hint="subject 의 일부 또는 연결 id",
    filter_app="앱",
    filter_state="상태",
    filter_type="종류",
    all="전체",
    apply="보기",
    count="{count}개 찾음",
    page_of="{pages}쪽 중 {page}쪽",
    newer="이전 쪽",
    older="다음 쪽",
    col_subject="대상",
    agent="에이전트",
    event_id="이벤트 id",
    col_agent="요청자",
    col_changed="변경",
    col_since="시작",
    state_alive="정상",
    state_ending="곧 종료",
    state_again="재동의 필요",
    state_ended="종료",
    no_grants="해당하는 연결이 없습니다.",
    grant_title="{app} 연결",
    label_id="연결 id",
    label_audit_name="감사 로그의 이름",
    label_provider="공급자",
    label_scopes="스코프",
    label_authorized="동의한 계정",
    label_used="최근 사용",
    label_until="토큰 만료",
    label_events="보낼 이벤트",
    label_told="공급자 통지",
    not_told="종료를 아직 알려야 함",
    told="알릴 것 없음",
    never="알 수 없음",
    revoke="해제",
    revoke_title="{app} 연결을 해제할까요?",
    revoke_lead="지금부터 도구가 이 연결의 토큰을 받을 수 없습니다. 공급자와 기다리는 에이전트에게 알립니다.",
    revoke_button="해제",
    keep="유지",
    waiting_lead="요청을 받았지만 아직 동의하지 않은 사람들입니다.",
    col_expires="만료",
    col_way="진행",
    way_open="열지 않음",
    way_left="진행 중",
    cancel="취소",
    no_waiting="기다리는 요청이 없습니다.",
    queues_lead="에이전트에게 가는 이벤트입니다.",
    col_waiting="대기",
    col_leased="처리 중",
    col_dead="실패",
    col_oldest="가장 오래된 것",
    no_queues="모든 큐가 비어 있습니다.",
    dead_heading="처리하지 못한 이벤트",
    dead_lead="소비자가 끝내 처리하지 못한 이벤트입니다. 다시 시도하면 횟수를 처음부터 셉니다.",
    col_event="이벤트",
    col_address="주소",
    col_attempts="시도",
    unreadable="읽을 수 없음",
    retry="다시 시도",
    drop="버리기",
    drop_title="이 이벤트를 완전히 버릴까요?",
    drop_lead="에이전트는 이 이벤트를 알 수 없게 됩니다. 연결 자체는 그대로입니다.",
    drop_button="버리기",
    no_dead="없습니다.",
    circuits_lead="이 프로세스가 잠시 묻지 않는 공급자와 그 이유입니다. 다른 워커의 차단기는 따로 있습니다.",
    col_what="대상",
    what_renewals="토큰 갱신",
    what_revocations="해제 통지",
    what_devices="디바이스 코드",
    col_why="이유",
    col_left="다시 묻기까지",
    all_grants="모든 연결",
    one_grant="연결 하나",
    seconds="{count}초",
    no_circuits="열린 차단기가 없습니다. 모든 공급자에게 묻고 있습니다.",
    audit_lead="최신 항목부터 표시합니다.",
    col_when="시각",
    col_type="종류",
    col_details="내용",
    forged="앞 줄과 이어지지 않음",
    no_audit="해당하는 항목이 없습니다.",
    actions="작업",
    done_revoked="연결이 해제되었습니다.",
    done_cancelled="요청을 취소했습니다.",
    done_retried="이벤트를 다시 시도합니다.",
    done_dropped="이벤트를 버렸습니다.",
    done_nothing="할 일이 남아 있지 않았습니다.",
)

ADMIN: dict[Locale, AdminTexts] = {"en": EN, "ko": KO}
