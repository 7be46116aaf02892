"""Tag filters of subscriptions, as RocketMQ's FilterAPI reads them."""

from typing import Final

ALL: Final = "*"
_OR: Final = "||"
# Java's `trim` removes these characters only.
_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))


def tags_of(expression: str | None) -> frozenset[str] | None:
    """Return the tags of an expression `a || b`; None if it passes all messages. Raises ValueError.

    Only an empty expression and `*` pass all messages. One of blanks has no tag, and brokers pass no message for it.
    """
    if not expression or expression == ALL:
        return None
    parts = expression.split(_OR)
    if not any(parts):
        raise ValueError("subString split error")
    return frozenset(part.strip(_BLANKS) for part in parts) - {""}
