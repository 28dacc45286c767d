"""Generated puzzles and exercises."""
