"""One tool to call: the environment that shows what an environment is."""
