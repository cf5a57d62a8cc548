"""The processes of `oauthbroker serve`: one worker, or several and their parent."""
