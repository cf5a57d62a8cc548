"""What a scope means to a person: well-known ones in a sentence, others as the provider spells them. Data first."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.errors import Locale

_GOOGLE = "https://www.googleapis.com/auth/"
_KNOWN: dict[str, dict[str, tuple[str, str]]] = {
    "": {  # OpenID Connect Core section 5.4 and 11: the same words everywhere
        "openid": ("Know which account is yours", "내 계정 식별"),
        "profile": ("See your name and public profile", "이름과 공개 프로필 보기"),
        "email": ("See your email address", "이메일 주소 보기"),
        "phone": ("See your phone number", "전화번호 보기"),
        "address": ("See your postal address", "주소 보기"),
        "offline_access": ("Stay connected while you are away", "부재 중에도 연결 유지"),
    },
    "slack": {
        "chat:write": ("Send messages", "메시지 보내기"),
        "channels:read": ("See the list of public channels", "공개 채널 목록 보기"),
        "channels:history": ("Read messages in public channels", "공개 채널의 메시지 읽기"),
        "groups:read": ("See the list of private channels", "비공개 채널 목록 보기"),
        "groups:history": ("Read messages in private channels", "비공개 채널의 메시지 읽기"),
        "im:history": ("Read direct messages", "다이렉트 메시지 읽기"),
        "files:read": ("See shared files", "공유된 파일 보기"),
        "files:write": ("Upload, change and delete files", "파일 올리기, 수정, 삭제"),
        "users:read": ("See the people of the workspace", "워크스페이스 구성원 보기"),
        "users:read.email": ("See email addresses of the workspace", "워크스페이스 구성원의 이메일 보기"),
        "identity.basic": ("Know which account is yours", "내 계정 식별"),
    },
    "github": {
        "repo": ("Full control of your private and public repositories", "비공개 및 공개 저장소 전체 제어"),
        "public_repo": ("Change public repositories", "공개 저장소 변경"),
        "read:user": ("See your profile", "프로필 보기"),
        "user": ("See and change your profile", "프로필 보기와 변경"),
        "user:email": ("See your email addresses", "이메일 주소 보기"),
        "read:org": ("See your organizations and teams", "조직과 팀 보기"),
        "workflow": ("Change automated workflows", "자동화 워크플로 변경"),
        "gist": ("Create and change gists", "Gist 만들기와 변경"),
    },
    "google": {
        f"{_GOOGLE}drive": ("See, change and delete all your files", "모든 파일 보기, 수정, 삭제"),
        f"{_GOOGLE}drive.readonly": ("See all your files", "모든 파일 보기"),
        f"{_GOOGLE}drive.file": ("Use only the files opened with this app", "이 앱으로 연 파일만 사용"),
        f"{_GOOGLE}calendar": ("See, change and delete your calendars", "캘린더 보기, 수정, 삭제"),
        f"{_GOOGLE}calendar.readonly": ("See your calendars", "캘린더 보기"),
        f"{_GOOGLE}gmail.readonly": ("Read your mail", "메일 읽기"),
        f"{_GOOGLE}gmail.send": ("Send mail as you", "내 이름으로 메일 보내기"),
        f"{_GOOGLE}userinfo.email": ("See your email address", "이메일 주소 보기"),
        f"{_GOOGLE}userinfo.profile": ("See your name and public profile", "이름과 공개 프로필 보기"),
    },
    "microsoft": {
        "User.Read": ("See your profile", "프로필 보기"),
        "Mail.Read": ("Read your mail", "메일 읽기"),
        "Mail.Send": ("Send mail as you", "내 이름으로 메일 보내기"),
        "Calendars.Read": ("See your calendars", "캘린더 보기"),
        "Calendars.ReadWrite": ("See and change your calendars", "캘린더 보기와 변경"),
        "Files.Read": ("See your files", "파일 보기"),
        "Files.ReadWrite": ("See, change and delete your files", "파일 보기, 수정, 삭제"),
        "Team.ReadBasic.All": ("See the names of your teams", "팀 이름 보기"),
        "Chat.ReadWrite": ("Read and send chat messages", "채팅 메시지 읽기와 보내기"),
    },
}  # fmt: skip
_BRANDS = {"slack": "Slack", "github": "GitHub", "google": "Google", "microsoft": "Microsoft"}


@dataclass(frozen=True, slots=True)
class ScopeLine:
    """One permission as shown: the sentence for people, empty for a scope that we do not know, and the scope itself."""

    label: str
    raw: str


def scope_line(provider: str, scope: str, locale: Locale) -> ScopeLine:
    """A permission in the reader's words. A scope that we do not know has none: a guess could hide what it allows."""
    known = _KNOWN.get(provider, {}).get(scope) or _KNOWN[""].get(scope)
    if known is None:
        return ScopeLine("", scope)
    return ScopeLine(known[1] if locale == "ko" else known[0], scope)


def brand_of(provider: str) -> str:
    """How people call a provider that everybody knows; empty for any other."""
    return _BRANDS.get(provider, "")


def provider_title(provider: str, host: str) -> str:
    """How people call a provider; where only a protocol's name or a local one is known, the host says it best."""
    return _BRANDS.get(provider, host)
