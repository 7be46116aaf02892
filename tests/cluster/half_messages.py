"""Half messages: the first step of a transaction, as a Java producer sends it."""

from dataclasses import dataclass

from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.ids import OffsetMessageId
from tests.cluster.client import Client, unique


@dataclass
class Half:
    """A half message that a producer has sent."""

    topic: str
    group: str
    reply: RemotingCommand
    unique_id: str

    def end(self, producer: Client, how: int) -> None:
        """Send END_TRANSACTION like a Java producer without a check."""
        fields = {
            "topic": self.topic,
            "producerGroup": self.group,
            "tranStateTableOffset": self.reply.fields["queueOffset"],
            "commitLogOffset": OffsetMessageId.parse(self.reply.fields["msgId"]).offset,
            "commitOrRollback": how,
            "fromTransactionCheck": False,
            "msgId": self.unique_id,
            "transactionId": self.unique_id,
        }
        producer.send_oneway(RequestCode.END_TRANSACTION, producer.named(fields))


async def send_half(producer: Client, topic: str, group: str, body: bytes) -> Half:
    unique_id = unique("TX")
    pairs = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: group, "UNIQ_KEY": unique_id}
    prepared = int(messages.SysFlag.TRANSACTION_PREPARED)
    reply = await producer.send(topic, body, pairs, producerGroup=group, sysFlag=prepared)
    return Half(topic, group, reply, unique_id)
