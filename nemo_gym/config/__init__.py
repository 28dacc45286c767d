"""How the one global config is built, checked and handed to other processes.

Import the module you need (`nemo_gym.config.compose`, `.roots`, `.secrets`, …): this package itself imports nothing, so
that `import nemo_gym` stays cheap.
"""
