"""The token call: `OAuthManager` and `ctx.oauth`."""
