"""The scenarios of tests/cluster/grpc/test_pulling.py on the embedded broker."""

from tests.cluster.grpc.test_pulling import *  # noqa: F403  # the same scenarios
