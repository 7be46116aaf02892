"""A request of each code for an authority, and its decision about it."""

from proxy.auth.authority import Authority
from proxy.core.context import Context
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.requests import REQUESTS, Direction
from tests.proxy.fakes import FakeChannel, peer
from tests.proxy.messages import complete, heartbeat

BODIES = {
    RequestCode.HEART_BEAT: heartbeat("c1", {"g": ["orders", "%RETRY%g"]}, ["p"]).body,
    RequestCode.LOCK_BATCH_MQ: b'{"consumerGroup":"g","mqSet":[{"topic":"orders","brokerName":"b","queueId":0}]}',
    RequestCode.UNLOCK_BATCH_MQ: b'{"consumerGroup":"g","mqSet":[{"topic":"orders","brokerName":"b","queueId":0}]}',
    RequestCode.CHECK_CLIENT_CONFIG: b'{"group":"g","subscriptionData":{"topic":"orders"}}',
    RequestCode.QUERY_ASSIGNMENT: b'{"consumerGroup":"g","topic":"orders"}',
    RequestCode.BATCH_ACK_MESSAGE: b'{"brokerName":"b","acks":[{"c":"g","t":"orders"}]}',
    RequestCode.LITE_SUBSCRIPTION_CTL: b'{"subscriptionSet":[{"group":"g","topic":"orders"}]}',
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"g"}',
}
_OPTIONAL_TOPIC = (RequestCode.END_TRANSACTION, RequestCode.VIEW_MESSAGE_BY_ID)
# The requests of clients, not of tools.
DATA = [spec for spec in REQUESTS.values() if spec.direction is not Direction.BROKER and not spec.tool]
SERVED = [spec for spec in REQUESTS.values() if spec.direction is not Direction.BROKER]


def command(code: int, **more: str) -> RemotingCommand:
    named = {"topic": "orders"} if code in _OPTIONAL_TOPIC else {}
    made = complete(REQUESTS[code], **{**named, **more})
    made.body = BODIES.get(RequestCode(code), b"")
    return made


def ask(made: Authority, sent: RemotingCommand, address: str = "10.0.0.1:50000") -> None:
    """Let the authority authenticate and decide, as the core does. Raises NotAuthenticated, Forbidden."""
    channel = FakeChannel(peer(address))
    channel.principal = made.of_command(sent, channel.peer)
    made(Context(channel, sent, REQUESTS[sent.code], 0.0))
