"""Ext fields with groups that are not in the request's row."""

from collections.abc import Mapping

from proxy.embedded.broker.codes import ToolCode
from remoting.codes import RequestCode

MORE_GROUP_FIELDS: Mapping[int, tuple[str, ...]] = {
    RequestCode.UNREGISTER_CLIENT: ("producerGroup", "consumerGroup"),
    ToolCode.CLONE_GROUP_OFFSET: ("srcGroup",),
}
