"""The scenarios of tests/cluster/test_pop.py on the embedded broker."""

from tests.cluster.test_pop import *  # noqa: F403  # the same scenarios
