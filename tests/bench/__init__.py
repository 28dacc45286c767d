"""Figures of speed and size, each beside the floor of the same run. See docs/performance notes in docs/reports/."""
