"""GET_ROUTEINFO_BY_TOPIC: the topic's brokers, all at addresses where the client can reach us."""

from proxy.core.context import Context
from proxy.core.membership import touch
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting import routes
from remoting.codes import STANDARD_JSON_VERSION
from remoting.command import RemotingCommand
from remoting.routes import TopicRoute


async def route(core: Messaging, context: Context) -> RemotingCommand:
    """Answer with the route; the client will keep in touch with its brokers, so it is enrolled there."""
    topic = context.fields["topic"]
    found = await core.backend.route(topic)
    touch(core, context.channel, found.brokers)
    return commands.success(body=_encode(core, context, found))


def _encode(core: Messaging, context: Context, found: TopicRoute) -> bytes:
    command = context.command
    standard = command.version >= STANDARD_JSON_VERSION or command.fields.get("acceptStandardJsonOnly") == "true"
    return routes.encode(found, lambda broker: core.listener_routes.address_for(context, broker), standard)
