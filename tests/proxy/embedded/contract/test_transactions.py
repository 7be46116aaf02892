"""The scenarios of tests/cluster/test_transactions.py on the embedded broker."""

from tests.cluster.test_transactions import *  # noqa: F403  # the same scenarios
