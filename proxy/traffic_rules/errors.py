"""What clients are told by rules."""

from remoting.codes import ResponseCode
from remoting.errors import RemotingError


class FlowControlled(RemotingError):
    """A limit is used up. Producers are told at once: their clients do not repeat this code by themselves."""

    code = ResponseCode.FLOW_CONTROL


class UnderMaintenance(RemotingError):
    """Sends to the topic are refused for now; clients try again."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE
