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


def test_large_blocks_are_returned_when_they_are_freed() -> None:
    """Without a fixed threshold, glibc keeps blocks below the size of the largest that was freed."""
    process = ProcessMemory()
    try:
        del (largest := [bytes(16 << 20)])[:]
        before = process.read()
        blocks = [b"x" * 200_000 for _ in range(500)]
        assert process.read() - before > 80_000_000
        kept = blocks[::16]
        del blocks
        assert process.read() - before < 20_000_000
        assert (len(kept), largest) == (32, [])
    finally:
        process.close()
