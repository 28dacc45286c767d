"""Environments as things to describe, make, check and hand on."""
