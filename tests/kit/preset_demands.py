"""What a played provider wants of a request: its method, body, headers, parameters, and the client's proof."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from tests.kit.preset_plays import Demand

CLIENT_ID = "client-of-the-play"
_TYPES = {"form": "application/x-www-form-urlencoded", "json": "application/json", "query": "", "none": ""}
_PROOFS = {"post": {"client_id", "client_secret"}, "none": {"client_id"}, "jwt": {"client_id", "client_assertion"}}


@dataclass(frozen=True)
class Call:
    """One request as it came in. `members` is its body, in any form, or its query where it has none."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @classmethod
    def parsed(cls, raw: bytes) -> Call:
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return cls(method, urlsplit(target).path, urlsplit(target).query, headers, body)

    @property
    def members(self) -> dict[str, str]:
        if not self.body:
            return dict(parse_qsl(self.query, keep_blank_values=True))
        if self.headers.get("content-type", "").startswith(_TYPES["json"]):
            return {name: str(value) for name, value in json.loads(self.body).items()}
        return dict(parse_qsl(self.body.decode("ascii"), keep_blank_values=True))


@dataclass
class Inspector:
    """Holds requests against demands. `complaints` lists the unmet demands; `filled` replaces placeholders."""

    client_secret: str
    filled: Callable[[str], bytes]
    names: Mapping[str, str] = field(default_factory=dict)
    own_query: str = ""  # of the token endpoint's address
    complaints: list[str] = field(default_factory=list)

    def approves(self, demand: Demand, wanted: Mapping[str, str | None], call: Call, step: str) -> bool:
        """Whether the request meets the demand and carries exactly the `wanted` members beside it (None for absent)."""
        before = len(self.complaints)
        self.must(call.method == demand.method, f"{step}: a {call.method}")
        said = call.headers.get("content-type", "").partition(";")[0]
        self.must(said == _TYPES[demand.body], f"{step}: the body is {said or 'absent'}")
        self.must(demand.body not in {"none", "query"} or not call.body, f"{step}: a body that is not wanted")
        has_query = call.query != self.own_query and step in {"token", "refresh"}
        self.must(has_query == (demand.body == "query"), f"{step}: a query that is not wanted, or none")
        self.meets({name.lower(): it for name, it in demand.headers.items()}, call.headers, f"{step} header")
        wanted = {self.names.get(name, name): value for name, value in wanted.items()}
        self.meets({**wanted, **demand.params, **dict.fromkeys(demand.absent)}, call.members, step)
        if step not in {"userInfo", "facts"}:
            self._proves(demand, call, step)
        return len(self.complaints) == before

    def meets(self, wanted: Mapping[str, str | None], found: Mapping[str, str], step: str) -> None:
        for name, value in wanted.items():
            expected = None if value is None else self.filled(value).decode()
            self.must(found.get(name) == expected, f"{step}: {name} is not {value!r}")

    def must(self, met: bool, complaint: str) -> None:
        if not met:
            self.complaints.append(complaint)

    def _proves(self, demand: Demand, call: Call, step: str) -> None:
        """Which client it is, in the one way that is wanted and in no other."""
        header, members = call.headers.get("authorization", ""), call.members
        basic = "Basic " + base64.b64encode(f"{CLIENT_ID}:{self.client_secret}".encode()).decode()
        shown_tokens = {"access": ["{access}"], "refresh": ["{refresh}"]}.get(demand.token, ["{access}", "{refresh}"])
        bearers = [f"Bearer {self.filled(token).decode()}" for token in shown_tokens]
        expected = {"basic": [basic], "bearer": bearers}.get(demand.auth, [""])
        self.must(header in expected, f"{step}: the Authorization header")
        ids = {"client_id", "client_secret", "client_assertion"}
        shown = (ids | {self.names.get(name, name) for name in ids}) & set(members)
        expected_names = {self.names.get(name, name) for name in _PROOFS.get(demand.auth, set())}
        self.must(shown == expected_names, f"{step}: the client is shown by {sorted(shown)}")
        secret = members.get(self.names.get("client_secret", "client_secret"), self.client_secret)
        self.must(secret == self.client_secret, f"{step}: the secret")
