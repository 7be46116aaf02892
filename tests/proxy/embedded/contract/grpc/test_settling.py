"""The scenarios of tests/cluster/grpc/test_settling.py on the embedded broker."""

from tests.cluster.grpc.test_settling import *  # noqa: F403  # the same scenarios
