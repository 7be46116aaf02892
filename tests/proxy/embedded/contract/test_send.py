"""The scenarios of tests/cluster/test_send.py on the embedded broker."""

from tests.cluster.test_send import *  # noqa: F403  # the same scenarios
