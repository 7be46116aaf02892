"""The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).

Decoding walks a table by whole bytes: a row per inner node of the code tree, with the row that each byte leads to and
the symbols passed on the way. Rows are made when they are first needed; real headers visit few of the 256 nodes.
"""

from typing import Any

# Code lengths in bits by symbol; 256 is EOS. The code is canonical: codes ascend by length, then by symbol.
# fmt: off
_LENGTHS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
)
# fmt: on
_EOS = 256


def _codes() -> list[tuple[int, int]]:
    """(code, length) by symbol."""
    codes = [(0, 0)] * len(_LENGTHS)
    code = previous = 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda symbol: (_LENGTHS[symbol], symbol)):
        length = _LENGTHS[symbol]
        code <<= length - previous
        codes[symbol] = (code, length)
        code += 1
        previous = length
    return codes


def _tree() -> list[list[int]]:
    """Inner nodes as [child at 0, child at 1]: an inner node's number, or ~symbol."""
    nodes = [[0, 0]]
    for symbol, (code, length) in enumerate(_CODES):
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if not nodes[node][bit]:
                nodes[node][bit] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node][bit]
        nodes[node][code & 1] = ~symbol
    return nodes


def _ends() -> frozenset[int]:
    """The nodes at which a string may end: padding is at most seven ones (RFC 7541 section 5.2)."""
    ends, node = [0], 0
    for _ in range(7):
        node = _TREE[node][1]
        ends.append(node)
    return frozenset(ends)


_CODES = _codes()
_TREE = _tree()
# A row by inner node: for each byte the row that comes next, and the symbols passed. It is empty until it is needed.
_ROWS: list[list[Any]] = [[] for _ in _TREE]
# Where EOS leads, for good.
_FAILED: list[Any] = []
_FAILED += [(_FAILED, b"")] * 256
_END_ROWS = frozenset(id(_ROWS[node]) for node in _ends())


def _step(node: int, byte: int) -> tuple[list[Any], bytes]:
    symbols = bytearray()
    for shift in range(7, -1, -1):
        node = _TREE[node][byte >> shift & 1]
        if node < 0:
            if ~node == _EOS:
                return _FAILED, b""
            symbols.append(~node)
            node = 0
    return _ROWS[node], bytes(symbols)


def decode(data: bytes) -> bytes:
    """Raises ValueError for EOS inside and for padding that is too long or not all ones."""
    row = _ROWS[0]
    parts: list[bytes] = []
    append = parts.append
    try:
        for byte in data:
            row, symbols = row[byte]
            append(symbols)
    except IndexError:
        node = next(number for number, known in enumerate(_ROWS) if known is row)
        row += [_step(node, byte) for byte in range(256)]
        return decode(data)
    if id(row) not in _END_ROWS:
        raise ValueError("a Huffman string holds EOS" if row is _FAILED else "a Huffman string is not padded by ones")
    return b"".join(parts)


def encode(data: bytes) -> bytes:
    bits = size = 0
    for byte in data:
        code, length = _CODES[byte]
        bits = bits << length | code
        size += length
    padding = -size % 8
    return ((bits << padding) | ((1 << padding) - 1)).to_bytes((size + padding) // 8)
