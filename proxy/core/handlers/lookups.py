"""QUERY_MESSAGE: messages by key."""

from proxy.core.context import Context
from proxy.core.forwarding import send
from proxy.core.messaging import Messaging
from remoting import command as commands
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable


async def query_message(core: Messaging, context: Context) -> RemotingCommand:
    """Ask one broker of the topic, where none is named each in its turn.

    A client that looks a key up sends one request to every broker of the route and joins the
    answers itself; to us it sends as many, all alike.
    """
    broker = context.fields.get("bname") or context.channel.peer.broker
    if not broker:
        topic = context.fields["topic"]
        brokers = (await core.backend.route(topic)).brokers
        if not brokers:
            raise ServiceUnavailable(f"topic {topic} has no broker now")
        turns = context.channel.session.query_turns
        turn = turns.get(topic, 0)
        turns[topic] = turn + 1
        broker = brokers[turn % len(brokers)]
    reply = send(core, context, broker)
    return commands.success() if reply is None else await reply
