"""Traffic records: what every request, connection and group membership leaves behind, as Parquet."""
