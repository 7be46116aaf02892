"""Ext fields of the requests that send messages, and their builder.

SEND_MESSAGE and SEND_REPLY_MESSAGE spell the names out (SendMessageRequestHeader); SEND_BATCH_MESSAGE and the requests
of version 2 abbreviate each to one letter (SendMessageRequestHeaderV2). `remoting.requests` maps each request code to
its names.
"""

from dataclasses import dataclass

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


V1 = SendFieldNames(
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
V2 = SendFieldNames(*"abcdefghijklmn")


def send_fields(
    *,
    producer_group: str,
    topic: str,
    born_timestamp: int,
    properties: str = "",
    queue_id: int | None = None,
    broker: str | None = None,
    default_topic_queues: int = 4,
    sys_flag: int = 0,
    flag: int = 0,
    batch: bool = False,
    names: SendFieldNames = V2,
) -> dict[str, str]:
    """Build the ext fields of a message to send.

    `names` is the version; SEND_BATCH_MESSAGE also needs `batch`. Without `queue_id` and `broker`, the caller adds
    them before the request is sent.
    """
    fields = {
        names.producer_group: producer_group,
        names.topic: topic,
        names.default_topic: DEFAULT_TOPIC,
        names.default_topic_queues: str(default_topic_queues),
        names.sys_flag: str(sys_flag),
        names.born_timestamp: str(born_timestamp),
        names.flag: str(flag),
        names.properties: properties,
        names.reconsume_times: "0",
        names.unit_mode: "false",
        names.batch: "true" if batch else "false",
    }
    if queue_id is not None:
        fields[names.queue_id] = str(queue_id)
    if broker is not None:
        fields[names.broker] = broker
    return fields
