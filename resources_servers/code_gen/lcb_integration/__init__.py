"""The checker under the names that LiveCodeBench gave its parts, for code that imports those."""
