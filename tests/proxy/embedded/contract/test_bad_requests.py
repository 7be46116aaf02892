"""The scenarios of tests/cluster/test_bad_requests.py on the embedded broker."""

from tests.cluster.test_bad_requests import *  # noqa: F403  # the same scenarios
