"""EVERY ROUTE of the API that is about the replica, and how several workers serve it."""

from collections.abc import Mapping
from typing import Any

from proxy.admin.http import merging
from proxy.admin.http.merge_strategies import (
    ASKING,
    LONG,
    QUICK,
    Anyone,
    Everyone,
    Holder,
    Names,
    Numbered,
    Pages,
    group_fits,
)
from proxy.admin.http.merged_tap import tapped
from proxy.admin.http.merging import Rule
from proxy.admin.http.scatter_gather import Row
from proxy.admin.live.merging import figures
from proxy.operations.log_levels import ROOT

_STATE: dict[str, Rule] = {"ready": all, "draining": any}
_LEVEL: dict[str, Rule] = {"changed": any, "remaining": merging.largest}
_NAME_SERVER: dict[str, Rule] = {"state": merging.state, "pending": merging.total}


def _all_of_it(item: merging.Data) -> object:
    return item


def _value(item: merging.Data) -> object:
    return item["value"], item["origin"]


def _level(item: merging.Data) -> object:
    # What remains of a time is never quite the same.
    return item["level"], item["changed"], item["remaining"] is None


def _logger(item: merging.Data) -> object:
    return item["name"] != ROOT, item["name"]


def _grpc_members(group: Mapping[str, Any]) -> bool:
    return any(member["protocol"] == "grpc" for member in group["members"])


def _connected(_: Mapping[str, Any]) -> bool:
    return True


_CLIENT = "/v1/clients/{client_id}"
_GROUP = "/v1/consumer-groups/{group}"
_STATES = Everyone(merging.objects(_STATE, _all_of_it))
_LEVELS = Everyone(merging.objects(_LEVEL, _level))

ROWS: Mapping[tuple[str, str], Row] = {
    # Health, configuration, log levels: for all.
    ("POST", "/v1/health/fail"): _STATES,
    ("POST", "/v1/health/pass"): _STATES,
    ("POST", "/v1/drain"): _STATES,
    ("POST", "/v1/resume"): _STATES,
    ("GET", "/v1/version"): Everyone(merging.version),
    ("GET", "/v1/config"): Everyone(merging.keyed(("key",), {}, _value)),
    ("POST", "/v1/config/reload"): Everyone(merging.keyed(("key",), {}, _all_of_it, field="changes"), patience=ASKING),
    ("GET", "/v1/log-levels"): Everyone(merging.sorted_by(_logger, merging.keyed(("name",), _LEVEL, _level))),
    ("PUT", "/v1/log-levels/{logger}"): _LEVELS,
    ("DELETE", "/v1/log-levels/{logger}"): _LEVELS,
    # Connections are one worker's, clients may have some at several.
    ("GET", "/v1/connections"): Pages("age"),
    ("GET", "/v1/closed-connections"): Everyone(merging.latest("closed")),
    ("GET", "/v1/connections/{number}"): Numbered(),
    ("DELETE", "/v1/connections/{number}"): Numbered(),
    ("GET", "/v1/clients"): Names("client_id", merging.client),
    ("GET", "/v1/clients/{client_id}"): Everyone(merging.client),
    ("GET", "/v1/clients/{client_id}/running-info"): Holder(_CLIENT, _connected, ASKING),
    ("POST", "/v1/clients/{client_id}/verify"): Holder(_CLIENT, _connected, ASKING),
    # Members of groups, too; how far groups are, brokers know.
    ("GET", "/v1/producer-groups"): Names("name", merging.group_summary, ("members",)),
    ("GET", "/v1/producer-groups/{group}"): Everyone(merging.group),
    ("GET", "/v1/consumer-groups"): Names("name", merging.group_summary, ("members",), group_fits, ("topic", "skewed")),
    ("GET", "/v1/consumer-groups/{group}"): Everyone(merging.group, ("members",), ASKING),
    ("GET", "/v1/consumer-groups/{group}/lag"): Anyone(),
    ("GET", "/v1/consumer-groups/{group}/queues"): Everyone(merging.owners, ("answered",), LONG, ("elsewhere",)),
    ("POST", "/v1/consumer-groups/{group}/reset-offset"): Anyone(),
    ("GET", "/v1/consumer-groups/{group}/dead-letters"): Anyone(LONG),
    # Where they go depends on whether members of the group speak gRPC.
    ("POST", "/v1/consumer-groups/{group}/dead-letters/resend"): Holder(_GROUP, _grpc_members, LONG),
    # What brokers have is the same everywhere, how they are reached is not.
    ("GET", "/v1/topics"): Anyone(),
    ("GET", "/v1/topics/{topic}"): Anyone(),
    ("GET", "/v1/brokers"): Everyone(merging.brokers),
    ("GET", "/v1/name-servers"): Everyone(merging.keyed(("address",), _NAME_SERVER)),
    ("GET", "/v1/requests"): Everyone(merging.requests),
    ("GET", "/v1/receipt-handles"): Pages("age"),
    # What happens, each at one worker.
    ("GET", "/v1/tap"): tapped,
    ("GET", "/v1/errors"): Everyone(merging.latest("time")),
    ("GET", "/v1/audit"): Everyone(merging.latest("time")),
    ("GET", "/v1/live"): Everyone(figures, ("latencies",), QUICK / 2),
}
