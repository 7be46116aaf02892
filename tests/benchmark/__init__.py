"""Benchmarks: cost of a proxy between clients and broker, compared with the official Java proxy."""
