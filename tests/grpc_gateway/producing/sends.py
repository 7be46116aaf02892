"""A message that a gRPC client sends, and the fields of a broker that has stored it."""

from protos.apache.rocketmq.v2.definition_pb2 import Message, Resource, SystemProperties

# 198.51.100.1:10911 and commit log offset 4711.
OFFSET_ID = "C633640100002A9F0000000000001267"
STORED = {"msgId": OFFSET_ID, "queueId": "0", "queueOffset": "7"}


def message(number: int = 1, topic: str = "orders", **system: object) -> Message:
    return Message(
        topic=Resource(name=topic),
        system_properties=SystemProperties(message_id=f"01{number:032X}", **system),  # type: ignore[arg-type]
        body=b"hello",
    )
