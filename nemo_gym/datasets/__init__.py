"""Data sets that servers declare: find, check, measure and collate their rows.

Import the module you need; this package itself imports nothing.
"""
