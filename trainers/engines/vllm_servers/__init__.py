"""Sampling through vLLM servers.

`engine` spreads sequences over servers, each of which is a `server`; `transfer` hands weights over, and `receiver`
takes them inside the server; `watchdog` ends a server with the process that started it.
"""
