"""Which extra of the package installs a module that is missing."""

from __future__ import annotations

import re
from importlib import metadata

from oauthbroker.core.errors import place_of

_PACKAGE = "oauthbroker"
_REQUIREMENT = re.compile(r"""([\w.-]+)[^;]*;.*\bextra\s*==\s*["']([\w.-]+)["']""")


def missing_extra(error: BaseException) -> str:
    """Return which `pip install` brings the module that could not be imported, or an empty text if no extra has it.

    Of several extras the one counts that has the name of our folder where the import stands."""
    module = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    wanted = module.partition(".")[0].replace("_", "-").lower()
    found = {extra for package, extra in _required() if package == wanted} if wanted else set()
    if not found:
        return ""
    _, *folders = place_of(error).split(".")
    extra = next((each for each in folders if each in found), min(found))
    return f'it needs `pip install "{_PACKAGE}[{extra}]"`'


def _required() -> list[tuple[str, str]]:
    rows = map(_REQUIREMENT.match, metadata.requires(_PACKAGE) or ())
    return [(row[1].replace("_", "-").lower(), row[2]) for row in rows if row]
