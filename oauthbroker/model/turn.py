"""Turn: who is acting, for whom, and where a granted answer has to go. Made by the runtime, never by a tool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from oauthbroker.core.dataclasses import KW_ONLY, dataclass, field
from oauthbroker.core.errors import BrokerError, Code, Locale, known_locale
from oauthbroker.core.json_values import MOST_VALUES
from oauthbroker.core.plain_json import JsonLimits, NotPlainJson, plain_json
from oauthbroker.core.spelling import nearest
from oauthbroker.core.strict_json import MAX_DEPTH, Json
from oauthbroker.model.accounts import check_accounts
from oauthbroker.model.identities import is_agent, wrong_subject

SubjectMode = Literal["global", "user"]
MAX_TARGET_BYTES = 64 * 1024
TARGET: Final = JsonLimits(MAX_TARGET_BYTES, MAX_DEPTH, MOST_VALUES)


@dataclass(frozen=True, slots=True)
class TurnAuth:
    """`turn.auth`: the actor who caused the turn and the subjects it acts for.

    `actor` is `{type, id, display?}`; `subjects` has `global` and/or `user`, e.g. `slack:team:T111`. `accounts` lists
    the accounts of those subjects that may be used, app by app: `{"OAuthApp/google": ["work", "private"]}`, or
    `{"OAuthApp/google": {"allowed": ["work", "private"], "default": "work"}}`. Only the runtime can say it.
    """

    actor: Mapping[str, str] = field(default_factory=dict)
    subjects: Mapping[str, str] = field(default_factory=dict)
    accounts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the form of `from_json`; `accounts` only if there are some."""
        accounts = {"accounts": dict(self.accounts)} if self.accounts else {}
        return {"actor": dict(self.actor), "subjects": dict(self.subjects), **accounts}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> TurnAuth:
        """Parse the `auth` of specification 12.5.5: `{actor?, subjects?, accounts?}`. Raises `requestInvalid` for
        anything else."""
        said = _members(data, "auth", optional={"actor", "subjects", "accounts"})
        subjects = _members(said.get("subjects", {}), "subjects", optional={"global", "user"})
        given = {mode: subject for mode, subject in subjects.items() if subject is not None}
        accounts = said.get("accounts", {})
        check_accounts(accounts)
        if wrong := wrong_subject(given):
            raise _refused(wrong)
        return cls(_texts(said.get("actor", {}), "actor"), given, dict(accounts))


@dataclass(frozen=True, slots=True)
class ResumeTarget:
    """Where `auth.granted` goes: one agent's queue, one instance in it, and the turn context it brings back."""

    agent_name: str
    instance_key: str
    swarm_ref: str = "Swarm/default"
    _: KW_ONLY
    origin: Mapping[str, Json] = field(default_factory=dict)
    auth: TurnAuth = field(default_factory=TurnAuth)
    locale: Locale | None = None

    @property
    def turn(self) -> Turn:
        """The turn that resumes the one which asked."""
        return Turn(
            self.agent_name, self.instance_key, self.swarm_ref, origin=self.origin, auth=self.auth, locale=self.locale
        )

    def is_of(self, subject: str) -> bool:
        """Return whether the turn acts for this person."""
        return self.auth.subjects.get("user") == subject

    @property
    def address(self) -> tuple[str, str, str]:
        """What makes two targets the same conversation: FIFO holds within it."""
        return (self.swarm_ref, self.agent_name, self.instance_key)

    def to_json(self) -> dict[str, Json]:
        """Return the `resume` block of specification 12.5.5, and `locale` where the turn has one."""
        kind, _, name = self.swarm_ref.partition("/")
        return {
            "swarmRef": {"kind": kind, "name": name},
            "instanceKey": self.instance_key,
            "agentName": self.agent_name,
            "origin": dict(self.origin),
            "auth": self.auth.to_json(),
            **({"locale": self.locale} if self.locale is not None else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ResumeTarget:
        """Parse a stored target, or one that a broker sent: unknown members are passed over."""
        swarm, auth = data["swarmRef"], data.get("auth", {})
        return cls(
            agent_name=data["agentName"],
            instance_key=data["instanceKey"],
            swarm_ref=f"{swarm['kind']}/{swarm['name']}",
            origin=data.get("origin", {}),
            auth=TurnAuth(dict(auth.get("actor", {})), dict(auth.get("subjects", {})), dict(auth.get("accounts", {}))),
            locale=known_locale(data["locale"]) if "locale" in data else None,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """One event being worked on by one agent instance. `auth` is handed on unchanged when agents hand over.

    `auth` and `swarm_ref` may be the specification's JSON. Arguments of another type are kept and checked by the calls
    that are made in the turn: they answer `requestInvalid`.

    `locale` is the language of the person in this conversation, `en` or `ko`. None: the broker's.
    """

    agent_name: str
    instance_key: str
    swarm_ref: str = "Swarm/default"
    _: KW_ONLY
    origin: Mapping[str, Json] = field(default_factory=dict)
    auth: TurnAuth | None = None
    locale: Locale | None = None

    if TYPE_CHECKING:  # the types that a caller may give are wider than those that a reader gets

        def __init__(
            self,
            agent_name: str,
            instance_key: str,
            swarm_ref: str | Mapping[str, str] = "Swarm/default",
            *,
            origin: Mapping[str, Json] = ...,
            auth: TurnAuth | Mapping[str, Json] | None = None,
            locale: Locale | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.auth, Mapping):
            object.__setattr__(self, "auth", _read(TurnAuth.from_json, self.auth))
        if isinstance(self.swarm_ref, Mapping):
            object.__setattr__(self, "swarm_ref", _read(_swarm_ref, self.swarm_ref))
        if isinstance(self.swarm_ref, str) and self.swarm_ref.count("/") != 1:
            raise ValueError("swarm_ref is written Kind/name")

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Turn:
        """Parse the `resume` block of specification 12.5.5, whose `swarmRef`, `origin` and `auth` may be left out, and
        `locale`. Raises `requestInvalid` for anything else."""
        said = _members(data, "turn", {"agentName", "instanceKey"}, {"swarmRef", "origin", "auth", "locale"})
        auth = said.get("auth")
        return whole_turn(
            cls(
                said["agentName"],
                said["instanceKey"],
                _swarm_ref(said.get("swarmRef", "Swarm/default")),
                origin=said.get("origin", {}),
                auth=None if auth is None else TurnAuth.from_json(auth),
                locale=said.get("locale"),
            )
        )

    @property
    def resume_target(self) -> ResumeTarget:
        """Return the conversation to which the events of this turn go."""
        auth = self.auth or TurnAuth()
        return ResumeTarget(
            self.agent_name, self.instance_key, self.swarm_ref, origin=self.origin, auth=auth, locale=self.locale
        )


TurnLike = Turn | Mapping[str, Json]


def whole_turn(given: object) -> Turn:
    """Return the turn that a call is made in: a Turn, or the JSON of one. Raises `requestInvalid` for anything else,
    and `accountsInvalid`."""
    turn = given_turn(given)
    if not isinstance(turn, Turn) or _wrong_member(turn):
        raise _problem_of(turn)
    return turn


def given_turn(given: Any) -> Turn:
    """Return the Turn of a JSON. Other data stays as it is, for the calls to refuse."""
    turn: Turn = given
    if not isinstance(given, Turn) and isinstance(given, Mapping):
        turn = _read(Turn.from_json, given)
    return turn


def _problem_of(given: object) -> BrokerError:
    """Return the error of data that is no turn: for a JSON the one of its reader."""
    read, said = (TurnAuth.from_json, given.auth) if isinstance(given, Turn) else (Turn.from_json, given)
    if isinstance(said, Mapping):
        try:
            read(said)
        except BrokerError as error:
            return error
        except Exception:  # noqa: BLE001, S110  (its own code may raise)
            pass
    return _refused(_wrong_member(given) if isinstance(given, Turn) else "turn")


def locale_of(given: object, default: Locale) -> Locale:
    """Return the language to answer in, for anything that was given as a turn."""
    return known_locale(given.locale if isinstance(given, Turn) else None) or default


def _wrong_member(turn: Turn) -> str:
    """Return the member, as JSON names it, that no call can use; empty if there is none."""
    auth: object = TurnAuth() if turn.auth is None else turn.auth
    if not is_agent(turn.agent_name):
        return "agentName"
    for name, word in (("instanceKey", turn.instance_key), ("swarmRef", turn.swarm_ref)):
        if not (isinstance(word, str) and word):
            return name
    if not isinstance(auth, TurnAuth):
        return "auth"
    if turn.locale is not None and known_locale(turn.locale) is None:
        return "locale"
    if auth.accounts:
        check_accounts(auth.accounts)
    for name, given in (("origin", turn.origin), ("actor", auth.actor), ("subjects", auth.subjects)):
        if type(given) is not dict and not isinstance(given, Mapping):  # plain dictionaries need no look at a registry
            return name
    return wrong_subject(auth.subjects)


def _read(read: Callable[[Any], Any], given: object) -> Any:
    """Parse it with `read`. Refused data stays as it was given, for the call to refuse; so does a mapping whose own
    code raises."""
    try:
        return read(given)
    except Exception:  # noqa: BLE001  (anything may be given)
        return given


def _members(
    data: object, name: str, needed: Collection[str] = (), optional: Collection[str] = ()
) -> Mapping[str, Json]:
    if not isinstance(data, Mapping):
        raise _refused(name)
    known = {*needed, *optional}
    if set(needed) <= data.keys() <= known:
        return data
    refused = _refused(name)
    others = sorted(each for each in data if isinstance(each, str) and each not in known)
    near = next(filter(None, (nearest(other, known) for other in others)), "")
    if near:  # which of ours was meant; the word itself may be a secret in the wrong place
        refused.hint, refused.words = "nearestMember", {"place": name, "nearest": near}
    elif others:
        refused.note = f"{name} has the members {', '.join(sorted(known))} and no others"
    raise refused


def _texts(data: object, name: str) -> dict[str, str]:
    if not isinstance(data, Mapping) or not all(isinstance(text, str) for pair in data.items() for text in pair):
        raise _refused(name)
    return dict(data)


def _swarm_ref(ref: object) -> str:
    """`"Kind/name"`, also of `{kind, name, apiVersion?}`."""
    if isinstance(ref, Mapping):
        named = _texts(_members(ref, "swarmRef", {"kind", "name"}, {"apiVersion"}), "swarmRef")
        ref = f"{named['kind']}/{named['name']}"
    kind, slash, name = ref.partition("/") if isinstance(ref, str) else ("", "", "")
    if not kind or not slash or not name or "/" in name:
        raise _refused("swarmRef")
    return f"{kind}/{name}"


def _refused(name: str) -> BrokerError:
    """Return the error of a member, with its place in a request of the API."""
    pointer = {"turn": "/turn", "actor": "/turn/auth/actor", "subjects": "/turn/auth/subjects"}.get(
        name, f"/turn/{name}"
    )
    error = BrokerError(Code.REQUEST_INVALID, note=name)
    error.errors = ({"pointer": pointer, "problem": "value"},)
    error.hint = "subject" if name.startswith("auth/subjects/") else "agentName" if name == "agentName" else ""
    return error


def checked_target(target: ResumeTarget) -> ResumeTarget:
    """Return the event's target as a session stores it. Raises `requestInvalid` unless it consists of words and JSON of
    a sane size."""
    words = (target.agent_name, target.instance_key, target.swarm_ref)
    problem = "names are texts, and its locale is known"
    try:
        kept = plain_json(target.to_json(), TARGET)
    except NotPlainJson as refused:
        problem, kept = refused.problem, None
    except Exception:  # noqa: BLE001  (an object whose own code raises)
        kept = None
    spoken = target.locale is None or known_locale(target.locale) is not None
    if kept is None or not spoken or not all(isinstance(word, str) and word for word in words):
        raise BrokerError(Code.REQUEST_INVALID, note=f"the turn cannot be kept: {problem}")
    return ResumeTarget.from_json(kept)
