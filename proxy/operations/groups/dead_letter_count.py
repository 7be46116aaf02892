"""The number of new dead letters of all consumer groups, by surveys of their dead letter queues."""

from collections.abc import Collection, Mapping

# The offsets after the last messages of the queues of a dead letter topic at a broker, added. Key: topic and broker.
Ends = Mapping[tuple[str, str], int]


class DeadLetterCount:
    """Counts dead letters by the ends of their queues, so that messages which expire or are deleted hide no new ones.

    total: dead letters since the first survey.
    """

    def __init__(self) -> None:
        self.total = 0
        self._ends: dict[tuple[str, str], int] = {}
        # Brokers that have answered a survey: a queue that they add begins at 0.
        self._surveyed: set[str] = set()

    def update(self, ends: Ends, topics: Collection[str], old: Collection[str], answered: Collection[str]) -> None:
        """Add the increase since the survey before.

        topics: the dead letter topics that exist, as far as known. old: those of groups that the survey before left
        out, whose dead letters may be old. answered: brokers that answered every request.
        """
        for (topic, broker), end in ends.items():
            former = self._ends.get((topic, broker))
            if former is None:
                former = 0 if broker in self._surveyed and topic not in old else end
            # A topic that was deleted and created again begins at 0.
            self.total += end - former if end >= former else end
        self._ends.update(ends)
        for topic, broker in [key for key in self._ends if key[0] not in topics and key[1] in answered]:
            del self._ends[topic, broker]
        self._surveyed.update(answered)
