"""The scenarios of tests/cluster/test_command_line.py on the embedded broker."""

from tests.cluster.test_command_line import *  # noqa: F403  # the same scenarios
