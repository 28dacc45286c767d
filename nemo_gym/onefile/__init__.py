"""Environments that are one Python file: tools, a verifier and tasks."""
