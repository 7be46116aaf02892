"""Replies by which brokers deny a request."""

from remoting.codes import ResponseCode
from remoting.command import RemotingCommand

# Brokers with ACL 1.0 have no code for it: they answer with the exception that their check throws.
_ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"


def is_denial(reply: RemotingCommand) -> bool:
    """Return whether a broker denied the request: by NO_PERMISSION, or before ACL 2.0 by SYSTEM_ERROR and a remark."""
    if reply.code == ResponseCode.SYSTEM_ERROR:
        return _ACL_EXCEPTION in (reply.remark or "")
    return reply.code == ResponseCode.NO_PERMISSION
