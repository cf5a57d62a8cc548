"""Hold the version, in this one place: the build, the commands, the API's document and outgoing requests read it."""

from __future__ import annotations

VERSION = "0.1.0"
