"""Jobs: the report, roll-ups, compaction, the stream."""
