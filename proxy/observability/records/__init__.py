"""Traffic records: requests, connections and group memberships, written as Parquet."""
