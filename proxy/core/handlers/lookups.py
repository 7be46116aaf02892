"""QUERY_MESSAGE: messages by key."""

from proxy.core.context import Context
from proxy.core.forwarding import send
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable

# Topics of a client whose turns are remembered. A client queries the brokers of a topic at once, one after the other.
_MAX_TOPICS = 64


async def query_message(core: Messaging, context: Context) -> RemotingCommand:
    """Send the query to the named broker, else to each broker of the topic in turn.

    A client sends one query to every broker of the route and merges the replies. Through a proxy these are equal
    requests over one connection, except for brokers to which the client has a listener of their own.
    """
    broker = context.fields.get("bname") or context.channel.peer.broker
    if not broker:
        topic = context.fields["topic"]
        brokers = core.listener_routes.shared(context, (await core.backend.route(topic)).brokers)
        if not brokers:
            raise ServiceUnavailable(f"topic {topic} has no available broker")
        turns = context.channel.session.query_turns
        turn = turns.pop(topic, 0)
        if len(turns) >= _MAX_TOPICS:
            del turns[next(iter(turns))]
        turns[topic] = turn + 1
        broker = brokers[turn % len(brokers)]
    reply = send(core, context, broker)
    return commands.success() if reply is None else await reply
