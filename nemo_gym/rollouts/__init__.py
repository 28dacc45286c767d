"""Tasks in, records out: read, materialise, dispatch, journal, resume, progress.

Import the module you need; this package itself imports nothing.
"""
