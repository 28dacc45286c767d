"""Puzzles with coloured grids, graded by the grid in the reply."""
