"""The report: one HTML page about a span of traffic, and its tables as Parquet."""
