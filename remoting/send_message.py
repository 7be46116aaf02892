"""Ext fields of the requests that send messages, and their builder.

SEND_MESSAGE and SEND_REPLY_MESSAGE spell the names out (SendMessageRequestHeader); SEND_BATCH_MESSAGE and the requests
of version 2 abbreviate each to one letter (SendMessageRequestHeaderV2). `remoting.requests` maps each request code to
its names.
"""

from dataclasses import dataclass
from typing import Final

from remoting.names import DEFAULT_TOPIC


@dataclass(frozen=True, slots=True)
class SendFieldNames:
    """Names of the ext fields of a message to send, in the order of version 2's letters."""

    producer_group: str
    topic: str
    # The topic, and its number of queues, after which a missing topic is created.
    default_topic: str
    default_topic_queues: str
    queue_id: str
    # Bits of `remoting.messages.SysFlag`.
    sys_flag: str
    # Milliseconds since 1970.
    born_timestamp: str
    # Bits that belong to the application.
    flag: str
    # The property string (`remoting.properties`).
    properties: str
    reconsume_times: str
    unit_mode: str
    max_reconsume_times: str
    # "true": the body is a batch, under any request code.
    batch: str
    broker: str


V1: Final = SendFieldNames(
    producer_group="producerGroup",
    topic="topic",
    default_topic="defaultTopic",
    default_topic_queues="defaultTopicQueueNums",
    queue_id="queueId",
    sys_flag="sysFlag",
    born_timestamp="bornTimestamp",
    flag="flag",
    properties="properties",
    reconsume_times="reconsumeTimes",
    unit_mode="unitMode",
    max_reconsume_times="maxReconsumeTimes",
    batch="batch",
    broker="bname",
)
V2: Final = SendFieldNames(*"abcdefghijklmn")

_DEFAULT_TOPIC_QUEUES: Final = 4
# Ext fields of most messages. A copy of it is cheaper than a new dict with as many computed keys.
_COMMON_FIELDS: Final = {
    V2.producer_group: "",
    V2.topic: "",
    V2.default_topic: DEFAULT_TOPIC,
    V2.default_topic_queues: str(_DEFAULT_TOPIC_QUEUES),
    V2.sys_flag: "0",
    V2.born_timestamp: "0",
    V2.flag: "0",
    V2.properties: "",
    V2.reconsume_times: "0",
    V2.unit_mode: "false",
    V2.batch: "false",
}


def send_fields(
    *,
    producer_group: str,
    topic: str,
    born_timestamp: int,
    properties: str = "",
    queue_id: int | None = None,
    broker: str | None = None,
    default_topic_queues: int = _DEFAULT_TOPIC_QUEUES,
    sys_flag: int = 0,
    flag: int = 0,
    batch: bool = False,
) -> dict[str, str]:
    """Build the ext fields of a SEND_MESSAGE_V2, or of a SEND_BATCH_MESSAGE if `batch` is set.

    Without `queue_id` and `broker`, the caller adds them before the request is sent.
    """
    names = V2
    fields = _COMMON_FIELDS.copy()
    fields[names.producer_group] = producer_group
    fields[names.topic] = topic
    fields[names.born_timestamp] = str(born_timestamp)
    fields[names.properties] = properties
    if sys_flag:
        fields[names.sys_flag] = str(sys_flag)
    if flag:
        fields[names.flag] = str(flag)
    if default_topic_queues != _DEFAULT_TOPIC_QUEUES:
        fields[names.default_topic_queues] = str(default_topic_queues)
    if batch:
        fields[names.batch] = "true"
    if queue_id is not None:
        fields[names.queue_id] = str(queue_id)
    if broker is not None:
        fields[names.broker] = broker
    return fields
