"""From a need to a grant: sessions, the connect pages' service, callbacks, device codes, logins and pending codes."""
