"""AUTH_CREATE_USER to AUTH_LIST_ACL: users and ACLs, of which each broker keeps its own copy."""

from collections.abc import Sequence

from proxy.core.context import Context
from proxy.core.handlers import every_broker
from proxy.core.messaging import Messaging
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted

READS = (
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)
WRITES = (
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
)


async def query(core: Messaging, context: Context) -> RemotingCommand:
    """Return the reply of one broker. Raises NotPermitted, ServiceUnavailable."""
    return await every_broker.ask_one(core, context, await brokers(core, context))


async def change(core: Messaging, context: Context) -> RemotingCommand:
    """Change all brokers; return the first error. Raises NotPermitted, ServiceUnavailable.

    A repeated request completes a change of some brokers only, except for AUTH_CREATE_USER, which the others refuse.
    """
    return (await every_broker.ask_all(core, context, await brokers(core, context)))[0]


async def brokers(core: Messaging, context: Context) -> Sequence[str]:
    """Return the brokers that a request about users concerns. Raises NotPermitted, ServiceUnavailable."""
    signer = core.signing.signer
    if signer is not None and signer.replaces_signatures and context.principal.failure is not None:
        # Brokers would take the request for one of Gantry's own.
        raise NotPermitted("users can be managed only while authentication is on")
    return await every_broker.brokers(core, context)
