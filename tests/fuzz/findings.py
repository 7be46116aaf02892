"""Inputs that broke a property of a target, found by `make fuzz`."""

# Name of the target, and input.
FINDINGS: tuple[tuple[str, bytes], ...] = (("sql-filters", b"a BETWEEN 2 AND 'x'"),)
