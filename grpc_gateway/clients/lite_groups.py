"""Rules of lite groups: consumer groups that are bound to the parent topic of their lite topics (RIP-83).

Codes and texts are those of the official proxy (ClientProcessor). A configuration that is only assumed is not checked.
"""

from grpc_gateway.response_status import Refused
from protos.apache.rocketmq.v2.definition_pb2 import Code
from remoting.topic_group_config import GroupConfig

# Names in a request above the group's quota. Official clients count the quota themselves.
_QUOTA_BUFFER = 300


def check_quota(names: int, group: GroupConfig) -> None:
    """Check the number of lite topics in one request. Raises Refused (LITE_SUBSCRIPTION_QUOTA_EXCEEDED).

    Brokers check only the number of subscriptions of all clients.
    """
    quota = group.max_lite_subscriptions
    if not group.assumed and names > quota + _QUOTA_BUFFER:
        raise Refused(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, f"lite subscription quota exceeded: {quota}")
