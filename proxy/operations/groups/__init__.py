"""Operations on consumer groups: members, progress, surveys, resets of offsets."""
