"""Office work with 27 tools."""
