from grpc_gateway.producing.ended_transactions import EndedTransactions
from grpc_gateway.transaction_id import TransactionId


def transaction(number: int) -> TransactionId:
    return TransactionId("broker-a", number, number, f"id-{number}")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_transactions_are_forgotten_after_ten_minutes() -> None:
    clock = Clock()
    memory = EndedTransactions(clock)
    memory.add("orders", transaction(1), "source")
    clock.now = 599.0
    memory.add("orders", transaction(2), "source")
    assert memory.ended("orders", transaction(1))
    clock.now = 601.0
    assert not memory.ended("orders", transaction(1))
    assert memory.ended("orders", transaction(2))
    memory.add("orders", transaction(3), "source")
    assert len(memory) == 2


def test_transactions_of_another_topic_are_others() -> None:
    memory = EndedTransactions()
    memory.add("orders", transaction(1), "source")
    assert not memory.ended("payments", transaction(1))


def test_source_with_many_transactions_does_not_make_those_of_others_unknown() -> None:
    memory = EndedTransactions(limit=1_000)
    memory.add("orders", transaction(0), "small")
    for number in range(1, 10_000):
        memory.add("orders", transaction(number), "large")
        assert len(memory) <= 1_000
    assert memory.ended("orders", transaction(0))
    assert memory.ended("orders", transaction(9_999))
    assert not memory.ended("orders", transaction(1))


def test_transactions_of_many_sources_are_bounded() -> None:
    memory = EndedTransactions(limit=1_000)
    for number in range(3_000):
        memory.add("orders", transaction(number), number)
    assert len(memory) <= 1_000
    assert memory.ended("orders", transaction(2_999))


def test_repeated_failures_leave_nothing() -> None:
    memory = EndedTransactions()
    for number in range(100):
        memory.add("orders", transaction(number), "source")
        memory.undo("orders", transaction(number))
    assert len(memory) == 0
