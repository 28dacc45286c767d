"""Competitive programming, graded by unit tests."""
