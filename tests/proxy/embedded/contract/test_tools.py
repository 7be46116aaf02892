"""The scenarios of tests/cluster/test_tools.py on the embedded broker."""

from tests.cluster.test_tools import *  # noqa: F403  # the same scenarios
