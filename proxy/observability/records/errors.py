"""What can be wrong with traffic records before the first is written."""


class TrafficError(Exception):
    """Records cannot be kept there, whatever is tried; the text says what to do."""
