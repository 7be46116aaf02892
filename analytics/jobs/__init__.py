"""What is run: the report, roll-ups, compaction, the stream."""
