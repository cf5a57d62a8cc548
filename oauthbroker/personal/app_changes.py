"""A change of an app that works: it is tried by a login first, so that a wrong client id or secret changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from oauthbroker.core.secret import Secret
from oauthbroker.grants.grants import Secrets
from oauthbroker.personal.app_files import SECRET_KEY, text_of, write_app
from oauthbroker.personal.places import Places

_VARIABLE: Final = "LOGIN_CLIENT_SECRET"  # of the configuration that is tried; set for no process


class AppChange(NamedTuple):
    """The app as it shall be, and its client secret if that is a new one."""

    name: str
    resource: Mapping[str, Any]
    secret: Secret | None = None

    @contextmanager
    def tried(self, places: Places, env: Mapping[str, str]) -> Iterator[tuple[Path, Mapping[str, str]]]:
        """Give a configuration with the changed app alone, and its variables, for the block."""
        resource: dict[str, Any] = dict(self.resource)
        if self.secret is not None:
            source = {"clientSecret": {"valueFrom": {"env": _VARIABLE}}}
            resource["spec"] = {**resource["spec"], "client": resource["spec"]["client"] | source}
            env = {**env, _VARIABLE: self.secret.reveal()}
        with TemporaryDirectory(prefix=".login-", dir=places.root) as folder:  # beside the store, as the other one is
            Path(folder, places.broker_file.name).write_bytes(places.broker_file.read_bytes())
            Path(folder, "app.yaml").write_text(text_of(resource), "utf-8")
            yield Path(folder), env

    async def keep(self, places: Places, secrets: Secrets) -> None:
        """Store the change. Raises Refused for an app that no server would take."""
        if self.secret is not None:
            await secrets.put(self.name, SECRET_KEY, self.secret)
        write_app(places, self.name, self.resource)
