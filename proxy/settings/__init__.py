"""Typed settings, validated at start: one module per table, `model` for all of them, `loading` for their sources."""
