"""From a composed config to servers that answer: venvs, sockets, processes, readiness, supervision, and the end.

Importing the package imports nothing. `launch.Launch` is the whole start; `fork_server.prestart` may run before it.
"""
