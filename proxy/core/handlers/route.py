"""Routes and the list of brokers, with the proxy's advertised addresses."""

from proxy.core.context import Context
from proxy.core.membership import touch
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting import fastjson, routes
from remoting.codes import STANDARD_JSON_VERSION
from remoting.command import RemotingCommand
from remoting.routes import MASTER_ID, TopicRoute


async def route(core: Messaging, context: Context) -> RemotingCommand:
    """GET_ROUTEINFO_BY_TOPIC: register the client at the topic's brokers, with which it will communicate."""
    topic = context.fields["topic"]
    topic_route = await core.backend.route(topic)
    touch(core, context.channel, topic_route.brokers)
    return commands.success(body=_encode(core, context, topic_route))


async def clusters(core: Messaging, context: Context) -> RemotingCommand:
    """GET_BROKER_CLUSTER_INFO: return the brokers of all clusters, by which tools find their addresses."""
    brokers: dict[str, object] = {}
    by_cluster: dict[str, list[str]] = {}
    for name, cluster in sorted((await core.backend.clusters()).items()):
        address = core.listener_routes.address_for(context, name, tool=True)
        brokers[name] = {"brokerName": name, "cluster": cluster, "brokerAddrs": {MASTER_ID: address}}
        by_cluster.setdefault(cluster, []).append(name)
    return commands.success(body=fastjson.dumps({"brokerAddrTable": brokers, "clusterAddrTable": by_cluster}))


def _encode(core: Messaging, context: Context, topic_route: TopicRoute) -> bytes:
    command = context.command
    standard = command.version >= STANDARD_JSON_VERSION or command.fields.get("acceptStandardJsonOnly") == "true"
    return routes.encode(topic_route, lambda broker: core.listener_routes.address_for(context, broker), standard)
