"""The base tools: bash, file-system, http-fetch, agents. `tools.yaml` declares them (specification 002, section 14)."""
