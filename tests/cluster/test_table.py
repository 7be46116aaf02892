"""Scenarios of the rows of the request table, of all rpcs, and of all telemetry commands."""

from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting.requests import REQUESTS
from tests.cluster import test_acl, test_groups, test_pop, test_pull, test_send, test_tools, test_transactions
from tests.cluster.coverage import SCENARIOS
from tests.cluster.grpc import (
    test_ack_service,
    test_another_replica,
    test_clients,
    test_lite_topics,
    test_producing,
    test_pull_service,
    test_renewal,
)

_REMOTING_MODULES = (
    test_acl,
    test_groups,
    test_lite_topics,
    test_pop,
    test_pull,
    test_send,
    test_tools,
    test_transactions,
)
_GRPC_MODULES = (
    test_ack_service,
    test_another_replica,
    test_clients,
    test_lite_topics,
    test_producing,
    test_pull_service,
    test_renewal,
)


def _covered(*modules: object) -> set[int | str]:
    """Return what the scenarios of these modules cover, by tests that exist under their names."""
    walked = {name for module in modules for name in vars(module)}
    return {name for name, tests in SCENARIOS.items() if walked.intersection(tests)}


def test_every_request_code_has_a_scenario() -> None:
    assert {name for name in _covered(*_REMOTING_MODULES) if isinstance(name, int)} == set(REQUESTS)


def test_every_rpc_and_telemetry_command_has_a_scenario() -> None:
    rpcs = {method.name for method in pb.DESCRIPTOR.services_by_name["MessagingService"].methods}
    commands = {field.name for field in pb.TelemetryCommand.DESCRIPTOR.oneofs_by_name["command"].fields}
    expected = rpcs | {f"Telemetry.{name}" for name in commands}
    assert {name for name in _covered(*_GRPC_MODULES) if isinstance(name, str)} == expected
