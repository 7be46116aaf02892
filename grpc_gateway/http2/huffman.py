"""The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).

The decoder consumes whole bytes: its table has a row per inner node of the code tree, with the next row and the decoded
symbols for each byte. Rows are computed when they are first needed, as real headers visit few of the 256 nodes.
"""

from typing import Any, Final

# Code lengths in bits by symbol; 256 is EOS. The code is canonical: codes ascend by length, then by symbol.
# A list: compilers need minutes for so long a tuple.
# fmt: off
_LENGTHS: Final = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
]
# fmt: on
_EOS: Final = 256


def _codes() -> list[tuple[int, int]]:
    """Return (code, length) by symbol."""
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
    """Return the inner nodes as [child for 0, child for 1]; a child is the number of an inner node, or ~symbol."""
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
    """Return the nodes at which a string may end: padding is at most seven ones (RFC 7541 section 5.2)."""
    ends, node = [0], 0
    for _ in range(7):
        node = _TREE[node][1]
        ends.append(node)
    return frozenset(ends)


_CODES: Final = _codes()
_TREE: Final = _tree()
# The next row, and the decoded symbols as Latin-1 text: to join bytes takes longer.
_Step = tuple[list[Any], str]
# By inner node: the step for each byte; empty until it is needed.
_ROWS: Final[list[list[_Step]]] = [[] for _ in _TREE]
# The row after EOS, which is an error; it leads to itself.
_EOS_ROW: Final[list[_Step]] = []
_EOS_ROW.extend([(_EOS_ROW, "")] * 256)
_END_ROWS: Final = frozenset(id(_ROWS[node]) for node in _ends())


def _step(node: int, byte: int) -> _Step:
    symbols = bytearray()
    for shift in range(7, -1, -1):
        node = _TREE[node][byte >> shift & 1]
        if node < 0:
            if ~node == _EOS:
                return _EOS_ROW, ""
            symbols.append(~node)
            node = 0
    return _ROWS[node], symbols.decode("latin-1")


def _fill(row: list[_Step]) -> None:
    node = next(number for number, other in enumerate(_ROWS) if other is row)
    row += [_step(node, byte) for byte in range(256)]


def decode(data: bytes) -> str:
    """Return the decoded string as Latin-1.

    Raises ValueError for EOS, and for padding that is too long or not all ones.
    """
    row = _ROWS[0]
    parts: list[str] = []
    try:
        # By index: compiled code would make an object of each byte.
        for index in range(len(data)):
            row, symbols = row[data[index]]
            parts.append(symbols)
    except IndexError:
        _fill(row)
        return decode(data)
    if id(row) not in _END_ROWS:
        raise ValueError(
            "a Huffman string contains EOS" if row is _EOS_ROW else "a Huffman string is not padded by ones"
        )
    return "".join(parts)


def encode(data: bytes) -> bytes:
    """Return the encoded string, padded with ones."""
    bits = size = 0
    for byte in data:
        code, length = _CODES[byte]
        bits = bits << length | code
        size += length
    padding = -size % 8
    return ((bits << padding) | ((1 << padding) - 1)).to_bytes((size + padding) // 8)
