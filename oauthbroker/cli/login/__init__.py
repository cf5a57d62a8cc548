"""`oauthbroker login`: `questions` asks what an app needs, and `consent` sends the person to the provider."""
