import pytest

from remoting.hashing import hash_code


# From the definition: s[0]*31^(n-1) + ... + s[n-1] in 32 bits.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("polygenelubricants", -(2**31)),
        ("TagA", 2598919),
        ("😀", 55357 * 31 + 56832),
    ],
)
def test_hash_codes(text: str, expected: int) -> None:
    assert hash_code(text) == expected
