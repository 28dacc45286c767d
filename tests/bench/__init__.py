"""Figures of speed and size, each beside the floor of the same run. Dated results stand in docs/reports/."""
