"""Sandboxes described in other tools' files."""
