"""The scenarios of tests/cluster/test_weaknesses.py that a broker has to do with, on the embedded broker."""

from tests.cluster.test_weaknesses import (
    pytestmark,
    test_a_route_keeps_all_that_it_says,
    test_every_one_of_many_requests_is_answered_once,
    test_no_answer_is_lost_to_a_client_that_reads_slowly,
)

__all__ = [
    "pytestmark",
    "test_a_route_keeps_all_that_it_says",
    "test_every_one_of_many_requests_is_answered_once",
    "test_no_answer_is_lost_to_a_client_that_reads_slowly",
]
