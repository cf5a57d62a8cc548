"""The extras of the package: which one installs a missing module, and whether the installed packages fit it. The
ranges are those of pyproject.toml, as the installed package tells them."""

from __future__ import annotations

import operator
import re
from importlib import metadata
from typing import NamedTuple

from oauthbroker.core.errors import place_of

_PACKAGE = "oauthbroker"
_REQUIREMENT = re.compile(r"""([\w.-]+)[^;<>]*([^;]*);.*\bextra\s*==\s*["']([\w.-]+)["']""")
_BOUND = re.compile(r"(>=|<)([\d.]+)")
_RELEASE = re.compile(r"\d+(\.\d+)*")


class UnfitExtra(ImportError):
    """A package of an extra is missing, or its version is out of the range that we are written for."""


class _Required(NamedTuple):
    package: str
    bounds: str
    extra: str


def missing_extra(error: BaseException) -> str:
    """Return which `pip install` brings the module that could not be imported, or an empty text if no extra has it.

    Of several extras the one counts that has the name of our folder where the import stands."""
    module = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    wanted = module.partition(".")[0].replace("_", "-").lower()
    found = {each.extra for each in _required() if each.package == wanted} if wanted else set()
    if not found:
        return ""
    _, *folders = place_of(error).split(".")
    extra = next((each for each in folders if each in found), min(found))
    return f"it needs {_command(extra)}"


def check_extra(extra: str) -> None:
    """Raise UnfitExtra, with the range and the command that helps, unless each package of the extra is installed and
    fits. An extra that there is not has no packages."""
    for each in _required():
        if each.extra != extra or _fits(found := _version(each.package), each.bounds):
            continue
        has = f"{found} is installed" if found else "is not installed"
        bounds = ",".join(sorted(each.bounds.split(","), reverse=True))
        raise UnfitExtra(f"{each.package} {has}, and oauthbroker needs {each.package}{bounds}. Run: {_command(extra)}")


def _fits(found: str, bounds: str) -> bool:
    release = _RELEASE.match(found)
    compare = {">=": operator.ge, "<": operator.lt}
    return release is not None and all(
        compare[which](_numbers(release[0]), _numbers(bound)) for which, bound in _BOUND.findall(bounds)
    )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _command(extra: str) -> str:
    return f'`pip install "{_PACKAGE}[{extra}]"`'


def _required() -> list[_Required]:
    rows = map(_REQUIREMENT.match, metadata.requires(_PACKAGE) or ())
    return [_Required(row[1].replace("_", "-").lower(), row[2].strip(), row[3]) for row in rows if row]
