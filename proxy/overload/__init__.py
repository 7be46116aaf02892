"""Overload of the process: its memory, the connections that hold it, and what is shed when it runs short."""
