"""Errors of traffic records. Separate, so that the command line imports them without Arrow."""


class TrafficError(Exception):
    """The records cannot be written to the configured directory; the message says how to correct it."""
