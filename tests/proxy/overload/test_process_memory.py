"""The memory of a process. Measured in processes of their own, since the test process has memory that it may reuse."""

import multiprocessing
from collections.abc import Callable

import pytest

from proxy.overload.process_memory import ProcessMemory


def check_release_after_trim() -> None:
    """Release blocks below the threshold of mmap, which stay in the allocator when every other one is freed."""
    process = ProcessMemory()
    before = process.read()
    blocks = [b"x" * 60_000 for _ in range(2000)]
    assert process.read() - before > 80_000_000
    kept = blocks[::16]
    del blocks
    process.trim()
    assert process.read() - before < 40_000_000
    assert len(kept) == 125


def check_release_of_large_blocks() -> None:
    """Release large blocks; without a fixed threshold, glibc keeps those below the size of the largest freed one."""
    process = ProcessMemory()
    del (largest := [bytes(16 << 20)])[:]
    before = process.read()
    blocks = [b"x" * 200_000 for _ in range(500)]
    assert process.read() - before > 80_000_000
    kept = blocks[::16]
    del blocks
    assert process.read() - before < 20_000_000
    assert (len(kept), largest) == (32, [])


@pytest.mark.parametrize("check", [check_release_after_trim, check_release_of_large_blocks])
def test_freed_memory_is_returned_to_the_system(check: Callable[[], None]) -> None:
    child = multiprocessing.get_context("spawn").Process(target=check)
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_a_closed_measurement_reads_nothing() -> None:
    process = ProcessMemory()
    process.close()
    process.close()
    assert process.read() == 0
