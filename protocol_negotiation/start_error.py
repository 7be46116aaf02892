"""The base of errors that prevent a start."""


class StartError(Exception):
    """The settings, or a file or directory that they name, cannot be used; the message is for operators."""
