"""Texts that must follow instructions a program can check."""
