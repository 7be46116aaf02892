"""The scenarios of tests/cluster/grpc/test_renewal.py on the embedded broker."""

from tests.cluster.grpc.test_renewal import *  # noqa: F403  # the same scenarios
