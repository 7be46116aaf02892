"""GET_ROUTEINFO_BY_TOPIC: the topic's brokers at the proxy's advertised addresses."""

from proxy.core.context import Context
from proxy.core.membership import touch
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting import routes
from remoting.codes import STANDARD_JSON_VERSION
from remoting.command import RemotingCommand
from remoting.routes import TopicRoute


async def route(core: Messaging, context: Context) -> RemotingCommand:
    """Return the route, and register the client at its brokers, with which it will communicate."""
    topic = context.fields["topic"]
    topic_route = await core.backend.route(topic)
    touch(core, context.channel, topic_route.brokers)
    return commands.success(body=_encode(core, context, topic_route))


def _encode(core: Messaging, context: Context, topic_route: TopicRoute) -> bytes:
    command = context.command
    standard = command.version >= STANDARD_JSON_VERSION or command.fields.get("acceptStandardJsonOnly") == "true"
    return routes.encode(topic_route, lambda broker: core.listener_routes.address_for(context, broker), standard)
