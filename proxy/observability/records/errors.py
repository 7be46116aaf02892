"""Errors of traffic records. Separate, so that the command line imports them without Arrow."""

from protocol_negotiation.start_error import StartError


class TrafficError(StartError):
    """The records cannot be written to the configured directory; the message says how to correct it."""
