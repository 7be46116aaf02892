"""The hash codes of tags."""

from functools import lru_cache


@lru_cache(4096)
def tag_code(tag: str) -> int:
    """Java's String.hashCode, as consumers send it with their subscriptions (SubscriptionData.codeSet)."""
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code
