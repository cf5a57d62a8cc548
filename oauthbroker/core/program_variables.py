"""Which environment variables the loader, a shell, an interpreter or a library reads for itself: a token there would be
printed in an error, or run, or taken for a path."""

from __future__ import annotations

from typing import Final

_BEGINNINGS: Final = ("LD_", "DYLD_", "PYTHON", "BASH_", "LC_", "XDG_", "PERL5", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_")
_NAMES: Final = {
    "PATH", "HOME", "SHELL", "ENV", "IFS", "CDPATH", "PS1", "PS2", "PS3", "PS4", "PROMPT_COMMAND", "SHELLOPTS",
    "BASHOPTS", "ZDOTDIR", "FPATH", "PWD", "OLDPWD", "USER", "LOGNAME", "TERM", "TERMINFO", "TMPDIR", "TEMP", "TMP",
    "TZ", "TZDIR", "LANG", "LANGUAGE", "LOCPATH", "NLSPATH", "GCONV_PATH", "GLIBC_TUNABLES", "EDITOR", "VISUAL",
    "PAGER", "BROWSER", "DISPLAY", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "CLASSPATH", "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EDITOR", "GIT_PAGER", "SSH_ASKPASS",
    "SSH_AUTH_SOCK", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
}  # fmt: skip


def is_of_system(name: str) -> bool:
    """Return whether programs read this variable for themselves, so that it can carry no token."""
    return name.upper() in _NAMES or name.upper().startswith(_BEGINNINGS)
