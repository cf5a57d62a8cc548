"""One person's connections on one machine: no server, no turn, and no configuration to write.

`places` says where they lie, `app_files` makes an app of a few answers, `local_broker` opens a broker over both,
`logins` connects and ends, and `connection` is what `oauthbroker.local(...)` returns.
"""
