"""Benchmarks: what a proxy costs between clients and broker, next to the official Java proxy."""
