"""`oauthbroker doctor`: its checks of configuration, place, providers and values."""
