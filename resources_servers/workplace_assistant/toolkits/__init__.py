"""The tools of the office, one module per application."""
