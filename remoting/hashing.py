"""Java's hash code of a text: what brokers know a tag by, and message groups are spread by."""


def hash_code(text: str) -> int:
    """`String.hashCode` of Java, over UTF-16 units, as a signed number of 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code
