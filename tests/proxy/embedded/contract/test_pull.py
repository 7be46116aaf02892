"""The scenarios of tests/cluster/test_pull.py on the embedded broker."""

from tests.cluster.test_pull import *  # noqa: F403  # the same scenarios
