"""The report: one HTML page about a time's traffic, and its tables as Parquet."""
