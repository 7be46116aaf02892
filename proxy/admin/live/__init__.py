"""The live page: what happens at this replica now, for the eyes of an operator."""
