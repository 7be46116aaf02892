"""The early end of long polls."""

from proxy.core.channel import Channel
from proxy.core.empty_poll import empty_poll
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.outcomes import Reply


def cancel_polls(channel: Channel) -> None:
    """Cancel the long polls of a channel that has closed, which releases their share of the budget."""
    for poll in list(channel.session.polls):
        poll.cancel()


def refuse_polls(channel: Channel, error: RemotingError) -> int:
    """Answer the long polls of a channel with an error; return their number."""
    return sum(end_poll(poll, error) for poll in list(channel.session.polls))


def answer_polls(channel: Channel, reason: str) -> int:
    """Answer the long polls of a channel with "no message found"; return their number."""
    return sum(
        end_poll(reply, empty_poll(context.known_spec, context.fields, reason))
        for reply, context in list(channel.session.polls.items())
    )


def end_poll(reply: Reply, outcome: RemotingCommand | RemotingError) -> bool:
    """End a long poll with a reply or an error; return whether it was in flight."""
    if reply.done():
        return False
    if isinstance(outcome, RemotingCommand):
        reply.set_result(outcome)
    else:
        reply.set_exception(outcome)
    return True
