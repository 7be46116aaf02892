"""Ext fields with further groups than that of the request's row."""

from collections.abc import Mapping

from remoting.broker_requests import BROKER_REQUESTS
from remoting.codes import RequestCode

MORE_GROUP_FIELDS: Mapping[int, tuple[str, ...]] = {
    RequestCode.UNREGISTER_CLIENT: ("producerGroup", "consumerGroup"),
    **{code: (row.source_group,) for code, row in BROKER_REQUESTS.items() if row.source_group is not None},
}
