"""Detectors: each takes the compact tables and returns findings of a few kinds."""
