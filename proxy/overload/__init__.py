"""Overload of the process: its memory, the connections that hold it, and the load that is shed when it runs short."""
