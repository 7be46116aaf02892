"""Causes of the end of a remoting connection."""

from enum import StrEnum


class CloseCause(StrEnum):
    """Cause of a connection's end; the values are metric labels."""

    PEER = "peer"
    RESET = "reset"
    IDLE = "idle"
    PROTOCOL = "protocol"
    SLOW_READER = "slow_reader"
    UNFINISHED_FRAME = "unfinished_frame"
    OVERLOAD = "overload"
    DRAIN = "drain"
    OPERATOR = "operator"
    REVOKED = "revoked"
    UNRESPONSIVE = "unresponsive"
    LOCAL = "local"
