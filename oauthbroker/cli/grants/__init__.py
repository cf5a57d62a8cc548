"""`oauthbroker grants`: list, import, revoke, erase."""
