"""Plug-ins: packages that extend the broker. `declaration` is what a plug-in says about itself, `discovery` finds the
installed ones. docs/plugins.md explains both. The broker imports no plug-in by name."""
