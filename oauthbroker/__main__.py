"""`python -m oauthbroker`: the command, where no script of it is on the path."""

from __future__ import annotations

from oauthbroker.cli import main

if __name__ == "__main__":
    main()
