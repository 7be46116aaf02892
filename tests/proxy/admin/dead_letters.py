"""Messages that become dead letters of a consumer group."""

from remoting.codes import RequestCode
from tests.cluster.client import Client


def message_id(number: int) -> str:
    """Return the unique id of a message."""
    return f"7F000001000018B4AAC3{number:012}"


async def bury(client: Client, topic: str, group: str, numbers: range) -> None:
    """Send messages to a topic of one queue, and make dead letters of them. Numbers count the topic's messages from 0.

    The client is a member of the group.
    """
    for number in numbers:
        await client.send(topic, b"dead %d" % number, {"UNIQ_KEY": message_id(number)})
        (stored,) = await client.pull(topic, group, offset=number)
        fields = {"offset": stored.commit_log_offset, "group": group, "delayLevel": -1, "originTopic": topic}
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(fields))
