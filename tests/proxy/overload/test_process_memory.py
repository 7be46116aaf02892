from proxy.overload.process_memory import ProcessMemory


def test_memory_is_measured_and_returned_to_the_system() -> None:
    """Blocks below the threshold of mmap stay in the allocator when every other one is freed."""
    process = ProcessMemory()
    try:
        # Else the blocks would take memory that the allocator has kept.
        process.trim()
        before = process.read()
        blocks = [b"x" * 60_000 for _ in range(2000)]
        full = process.read()
        assert full - before > 80_000_000
        kept = blocks[::16]
        del blocks
        process.trim()
        assert process.read() - before < 40_000_000
        assert len(kept) == 125
    finally:
        process.close()


def test_a_closed_measurement_reads_nothing() -> None:
    process = ProcessMemory()
    process.close()
    process.close()
    assert process.read() == 0
