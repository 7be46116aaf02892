"""Heartbeat sync: group members shared with the official Java proxies, in their format, over their topic."""
