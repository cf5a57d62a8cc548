"""Add-on rooms: packages that extend the broker. `declaration` is what a room says about itself, `discovery` finds the
installed ones. docs/plugins.md explains both. The broker imports no room by name."""
