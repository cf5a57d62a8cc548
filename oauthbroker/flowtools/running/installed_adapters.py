"""Adapters of payments and SMS from other packages, by entry points. `testing.flow_adapter_contract` tests them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final, Literal

from oauthbroker import Secret
from oauthbroker.flowtools.running.ports import Adapter

GROUPS: Final = {"payments": "oauthbroker.flow_payments", "sms": "oauthbroker.flow_sms"}


Port = Literal["payments", "sms"]


def adapter_problem(port: Port, name: str) -> str:
    """Return why the entry point of an adapter cannot be taken; empty if it can. No code of a package runs."""
    found = len(metadata.entry_points(group=GROUPS[port], name=name))
    why = "several installed packages have" if found else "no installed package has"
    return "" if found == 1 else f"{why} this entry point in {GROUPS[port]}"


def installed_adapter(port: Port, name: str, settings: Mapping[str, Any], secret: Secret | None) -> Adapter:
    """Return the adapter of that name, made with the settings and the secret of the configuration. The entry point is a
    callable that takes both. Raises ValueError, without a word of the package: it may hold the secret."""
    if problem := adapter_problem(port, name):
        raise ValueError(f"the adapter {name}: {problem}")
    (point,) = metadata.entry_points(group=GROUPS[port], name=name)
    try:
        adapter = point.load()(settings, secret)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of another package)
        why = type(error).__name__
    else:
        if callable(getattr(adapter, "send", None)) and isinstance(getattr(adapter, "takes_keys", None), bool):
            return adapter  # type: ignore[no-any-return]  # as far as can be seen here
        why = "it made no adapter"
    raise ValueError(f"the adapter {name}: {why}")
