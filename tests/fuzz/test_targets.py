"""A short run of the targets of fuzzing: their seeds, and inputs that were findings."""

import random

import pytest

from tests.fuzz.findings import FINDINGS
from tests.fuzz.target import MAX_INPUT, Target
from tests.fuzz.targets import TARGETS

_MUTATIONS = 200


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_seeds_and_their_mutations_are_handled(target: Target) -> None:
    source = random.Random(target.name)
    for seed in target.seeds:
        target.check(seed)
        for _ in range(_MUTATIONS // len(target.seeds)):
            target.check(_mutated(seed, target.tokens, source))


def _mutated(data: bytes, tokens: tuple[bytes, ...], source: random.Random) -> bytes:
    """Return a copy with some bytes replaced, removed or inserted."""
    result = bytearray(data)
    for _ in range(source.randint(1, 4)):
        position = source.randrange(len(result) + 1)
        inserted = source.choice(tokens) if tokens and source.random() < 0.3 else source.randbytes(source.randint(0, 3))
        result[position : position + source.choice((0, 0, 1, 2, 5))] = inserted
    return bytes(result[:MAX_INPUT])


@pytest.mark.parametrize(("target", "data"), FINDINGS)
def test_inputs_of_earlier_findings_are_handled(target: str, data: bytes) -> None:
    TARGETS[target].check(data)
