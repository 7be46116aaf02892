"""The scenarios of tests/cluster/test_groups.py on the embedded broker."""

from tests.cluster.test_groups import *  # noqa: F403  # the same scenarios
