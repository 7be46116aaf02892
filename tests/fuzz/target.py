"""A target of fuzzing: a parser of clients' bytes, and a property of every input."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

# CPU seconds that an input may take. Inputs have at most `MAX_INPUT` bytes; the instrumented code is slow.
MAX_CPU_SECONDS = 1.0
MAX_INPUT = 4096


@dataclass(frozen=True)
class Target:
    """A parser under test.

    test: raises if an input breaks a property. seeds: valid inputs, with which the search begins.
    tokens: words of the grammar, which the search inserts.
    """

    name: str
    test: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = field(default=())

    def check(self, data: bytes) -> None:
        """Run the test with an input. Raises AssertionError if it takes too long, or the error of the test."""
        start = time.process_time()
        self.test(data)
        seconds = time.process_time() - start
        assert seconds < MAX_CPU_SECONDS, f"{self.name}: {len(data)} bytes took {seconds:.2f} s"
