"""Listeners, HTTP/1.1 connections, and their end. `workers` runs them as the processes of `oauthbroker serve`."""
