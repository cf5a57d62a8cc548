"""Flow tools in a running broker: the service, its callers, its triggers. See README.md of the plug-in."""
