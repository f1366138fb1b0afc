"""The headers of the pages of a Parquet file, to be changed one number at a time.

Headers and metadata are in Thrift's compact encoding. Here a struct is a dict `{field: (kind, value)}`, a list is `(kind, values)`.
"""

import copy
from collections.abc import Iterator
from typing import Any

BOOLEANS, INTEGERS, LISTS = (1, 2), (4, 5, 6), (9, 10)
BYTE, DOUBLE, BYTES, STRUCT = 3, 7, 8, 12
# Fields of `PageHeader`, of `FileMetaData`, `RowGroup`, `ColumnChunk` and `ColumnMetaData`.
COMPRESSED_SIZE = 3
ROW_GROUPS, COLUMNS, METADATA = 4, 1, 3
TOTAL_COMPRESSED_SIZE, DATA_OFFSET, DICTIONARY_OFFSET = 7, 9, 11

Struct = dict[int, tuple[int, Any]]
# Of one row group: for each column its pages, a header and the bytes after it.
Pages = list[list[tuple[Struct, bytes]]]


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def _read(content: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in BOOLEANS:
        return kind == 1, at
    if kind == BYTE:
        return content[at], at + 1
    if kind in INTEGERS:
        value, at = _read_varint(content, at)
        return value >> 1 ^ -(value & 1), at
    if kind == DOUBLE:
        return content[at : at + 8], at + 8
    if kind == BYTES:
        length, at = _read_varint(content, at)
        return content[at : at + length], at + length
    if kind in LISTS:
        head, at = content[at], at + 1
        number, inner = head >> 4, head & 15
        if number == 15:
            number, at = _read_varint(content, at)
        values = []
        for _ in range(number):
            value, at = (content[at] == 1, at + 1) if inner in BOOLEANS else _read(content, at, inner)
            values.append(value)
        return (inner, values), at
    assert kind == STRUCT
    fields: Struct = {}
    last = 0
    while content[at] != 0:
        head, at = content[at], at + 1
        if head >> 4:
            last += head >> 4
        else:
            last, at = _read(content, at, 5)
        value, at = _read(content, at, head & 15)
        fields[last] = (head & 15, value)
    return fields, at + 1


def _write(kind: int, value: Any) -> bytes:
    if kind in BOOLEANS:
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind in INTEGERS:
        return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == DOUBLE:
        return bytes(value)
    if kind == BYTES:
        return _varint(len(value)) + value
    if kind in LISTS:
        inner, values = value
        head = bytes([min(len(values), 15) << 4 | inner]) + (_varint(len(values)) if len(values) >= 15 else b"")
        return head + b"".join(bytes([2 - one]) if inner in BOOLEANS else _write(inner, one) for one in values)
    made, last = b"", 0
    for field, (own, inner) in sorted(value.items()):
        made += bytes([field - last << 4 | own]) if field - last < 16 else bytes([own]) + _varint(field << 1)
        made += _write(own, inner)
        last = field
    return made + b"\0"


def _columns(metadata: Struct) -> list[Struct]:
    groups = metadata[ROW_GROUPS][1][1]
    return [chunk[METADATA][1] for group in groups for chunk in group[COLUMNS][1][1]]


class PagesOfFile:
    """A file taken apart, without its indices."""

    def __init__(self, content: bytes) -> None:
        length = int.from_bytes(content[-8:-4], "little")
        self._metadata: Struct = _read(content, len(content) - 8 - length, STRUCT)[0]
        self._pages: Pages = []
        for column in _columns(self._metadata):
            at = min(column[offset][1] for offset in (DATA_OFFSET, DICTIONARY_OFFSET) if offset in column)
            end, pages = at + column[TOTAL_COMPRESSED_SIZE][1], []
            while at < end:
                header, begin = _read(content, at, STRUCT)
                at = begin + header[COMPRESSED_SIZE][1]
                pages.append((header, content[begin:at]))
            self._pages.append(pages)

    def numbers(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Every number in every header: which column of all row groups, which page of it, and the path in the header."""
        for column, pages in enumerate(self._pages):
            for page, (header, _) in enumerate(pages):
                for field, (kind, value) in header.items():
                    if kind in INTEGERS:
                        yield column, page, (field,)
                    elif kind == STRUCT:
                        yield from ((column, page, (field, one)) for one in value if value[one][0] in INTEGERS)

    def with_number(self, column: int, page: int, path: tuple[int, ...], number: int) -> bytes:
        pages = copy.deepcopy(self._pages)
        struct = pages[column][page][0]
        for field in path[:-1]:
            struct = struct[field][1]
        struct[path[-1]] = (struct[path[-1]][0], number)
        return self._put_together(pages)

    def _put_together(self, all_pages: Pages) -> bytes:
        metadata, content = copy.deepcopy(self._metadata), bytearray(b"PAR1")
        for group in metadata[ROW_GROUPS][1][1]:
            for chunk in group[COLUMNS][1][1]:
                # Where its indices are.
                for field in (4, 5, 6, 7):
                    chunk.pop(field, None)
        for column, pages in zip(_columns(metadata), all_pages, strict=True):
            begin, data = len(content), None
            for number, (header, values) in enumerate(pages):
                if data is None and (number > 0 or DICTIONARY_OFFSET not in column):
                    data = len(content)
                content += _write(STRUCT, header) + values
            if DICTIONARY_OFFSET in column:
                column[DICTIONARY_OFFSET] = (6, begin)
            column[DATA_OFFSET] = (6, data)
            column[TOTAL_COMPRESSED_SIZE] = (6, len(content) - begin)
        made = _write(STRUCT, metadata)
        return bytes(content) + made + len(made).to_bytes(4, "little") + b"PAR1"
