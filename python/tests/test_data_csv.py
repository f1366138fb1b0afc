"""CSV beside `pyarrow.csv` on the same files: the usual horrors, one by one, and what we do otherwise, with the reason."""

import bz2
import contextlib
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pytest
from data_tables import assert_same, case, is_same, read_back

from carril import data
from carril.exceptions import CarrilError, ConfigError, StorageError


def write(directory: Path, content: str | bytes, name: str = "a.csv") -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def theirs(path: Path, *, read: Any = None, parse: Any = None, convert: Any = None) -> pa.Table:
    parse = parse or pc.ParseOptions(newlines_in_values=True)
    return pc.read_csv(path, read_options=read, parse_options=parse, convert_options=convert)


AS_PYARROW = {
    "plain": "a,b\n1,x\n2,y\n",
    "without a last line end": "a,b\n1,x",
    "windows": "a,b\r\n1,x\r\n2,y\r\n",
    "old mac": "a,b\r1,x\r2,y\r",
    "byte order mark": "\ufeffa,b\n1,x\n",
    "empty lines": "\n\na,b\n\n1,x\n\n\n2,y\n\n",
    "empty lines of one column": "a\nx\n\ny\n",
    "quotes": 'a,b\n"1","x,y"\n2,"q ""z"" w"\n"",""\n',
    "line ends in quotes": 'a,b\n1,"x\ny"\n2,"p\r\nq"\n',
    "quotes in the middle": 'a,b\n1,x"y"\n2, "z"\n',
    "text after a quote": 'a,b\n"x"y,1\n',
    "quotes in the header": '"a,1","b ""q""","c\nd"\n1,2,3\n',
    "unicode": "é,日本\n1,ß\n2,🎉\n",
    "a name that is empty": "a,\n1,2\n",
    "nulls": "i,f,b,s,d\n1,1.5,true,x,2020-01-01\n,,,,\nNA,NULL,null,NA,N/A\n",
    "every word for null": "a\n#N/A\n#N/A N/A\n#NA\n-1.#IND\n-1.#QNAN\n-NaN\n-nan\n1.#IND\n1.#QNAN\nN/A\nNA\nNULL\nNaN\nn/a\nnan\nnull\n1\n",
    "nothing but nulls": "a,b\n,NA\n,\n",
    "a quoted word for null": 'a\n"NA"\n1\n',
    "quoted numbers": 'a\n"1"\n"2"\n',
    "truth values": "a,b,c,d\ntrue,True,TRUE,1\nfalse,False,FALSE,0\n",
    "truth values and digits": "a\ntrue\n0\n1\n",
    "truth values and other words": "a,b,c\ntrue,tRue,true\nyes,true, true\n",
    "dates": "a,b\n2020-01-01,2020-01-01\n1969-12-31,NA\n",
    "no dates": "a,b,c,d\n2020-13-01,2020-02-30,2020/01/01,01/02/2020\n",
    "dates without signs": "a\n20200101\n",
    "moments": "a,b,c\n2020-01-01 10:11:12,2020-01-01T10:11,2020-01-01 10\n1960-02-29 00:00:00,2020-01-01,2020-01-02\n",
    "moments far away": "a,b\n9999-12-31 00:00:00,9999-12-31\n0001-01-01 00:00:00,0001-01-01\n",
    "moments with fractions": "a,b\n2020-01-01 10:11:12.5,2020-01-01 10:11:12\n2020-01-01 10:11:12.123456789,2020-01-01 10:11:12.000\n",
    "fractions far away": "a\n9999-12-31 00:00:00.5\n",
    "moments with zones": "a,b,c\n2020-01-01T10:11:12Z,2020-01-01 10:11:12+02:00,2020-01-01T10:11:12.25Z\n,2020-01-01 10:11:12-0130,2020-01-01T10:11:12.5+01\n",
    "moments with and without zones": "a\n2020-01-01T10:11:12Z\n2020-01-01T10:11:12\n",
    "times of day": "a,b,c\n10:11:12,10:11,10:11:12.5\n23:59:59,00:00,x\n",
    "the largest integers": "a\n9223372036854775807\n-9223372036854775808\n",
    "larger than integers": "a,b\n9223372036854775808,123456789012345678901234567890\n1,1\n",
    "exponents": "a\n1e5\n-2.5E-3\n1E+2\n",
    "infinities": "a,b\ninf,Inf\n-inf,-INF\n1.5,Infinity\n",
    "not a number": "a,b\nnan,NaN\n1.5,-nan\n",
    "precise floats": "a\n0.1\n0.30000000000000004\n1e308\n1e-320\n1e400\n1.0000000000000000001\n",
    "leading zeros": "a,b\n007,00.5\n010,1\n",
    "signs": "a,b,c,d\n+5,-0,-,-5\n",
    "points": "a,b\n.5,5.\n",
    "no numbers": 'a,b,c\n1_000,"1,000",5%\n',
    "blanks around": "a,b,c,d,e\n 1 , 1.5, x ,\t2, 2020-01-01\n2,3 , y,3,2020-01-01\n",
    "blank words for null": "a,b\n NA, \n1,2\n",
    "mixed": "a,b,c\n1,1,2020-01-01\nx,2.5,1\n2.5,3,x\n",
    "zero bytes": "a\nx\x00y\n",
    "only a header": "a,b\n",
    "many columns": ",".join(f"c{n}" for n in range(300)) + "\n" + ",".join(str(n) for n in range(300)) + "\n",
}  # fmt: skip


def test_what_pyarrow_reads_is_read_as_by_pyarrow(tmp_path: Path) -> None:
    for name in AS_PYARROW:
        with case(name):
            path = write(tmp_path, AS_PYARROW[name])
            assert_same(read_back(data.read_csv(path)), theirs(path))


# Where we do otherwise, on purpose.
OTHERWISE: dict[str, tuple[str, Any]] = {
    # A number that begins with 0x is more often a code than a count.
    "hexadecimal": ("a\n0x1F\n", [{"a": "0x1F"}]),
    # pyarrow sees no columns where the line does not end.
    "only a header that does not end": ("a,b", []),
}


def test_what_is_read_otherwise(tmp_path: Path) -> None:
    for name in OTHERWISE:
        with case(name):
            content, rows = OTHERWISE[name]
            path = write(tmp_path, content)
            assert data.read_csv(path).take_all() == rows
            with contextlib.suppress(pa.ArrowInvalid):
                assert theirs(path).to_pylist() != rows


BAD: dict[str, tuple[str | bytes, str]] = {
    "too few fields": ("a,b\n1,x\n2\n", "at line 3: it has 1 fields instead of 2"),
    "too many fields": ("a,b\n1,x,z\n", "at line 2: it has 3 fields instead of 2"),
    "too many after line ends in quotes": (
        'a,b\n1,"x\n\ny"\n1,2,3\n',
        "at line 5: it has 3 fields instead of 2",
    ),
    "blanks": ("a,b\n1,x\n  \n", "at line 3: it has 1 fields instead of 2"),
    # pyarrow takes the rest of the file for the value.
    "an open quote": ('a,b\n1,"x\n', "at line 2: a quote is never closed"),
    # pyarrow makes two columns of it, of which one is lost in a dictionary.
    "a name twice": ("a,a\n1,2\n", "at line 1: two columns are named `a`"),
    # pyarrow makes a column of bytes of it: text in another encoding would pass unseen.
    "another encoding": (b"a\nx\n\xff\xfe\n", "at line 3: it is not UTF-8"),
    "another encoding in the header": (b"\xff\n1\n", "at line 1: it is not UTF-8"),
}


def test_what_is_wrong_is_told_with_the_file_and_the_line(tmp_path: Path) -> None:
    for name in BAD:
        with case(name):
            content, text = BAD[name]
            path = write(tmp_path, content)
            with pytest.raises(StorageError) as raised:
                data.read_csv(path).take_all()
            assert f"cannot read `{path}`" in str(raised.value) and text in str(raised.value)


def test_a_value_that_does_not_fit_after_the_types_were_found_is_told(tmp_path: Path) -> None:
    lines = [f"{n},word" for n in range(200_000)]
    path = write(tmp_path, "\n".join(["a,b", *lines, "oops,word", ""]))
    with pytest.raises(StorageError) as raised:
        data.read_csv(path).take_all()
    assert "at line 200002: `oops` in column `a` is no Int64" in str(raised.value)
    assert "`column_types`" in str(raised.value)
    # pyarrow reads all of a file before it gives a row: that is what this reader does not do.
    assert theirs(path).schema.field("a").type == pa.string()
    assert data.read_csv(path, column_types={"a": str}).count() == 200_001


DIALECTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("a\tb\n1\t'x\ty'\n", {"delimiter": "\t", "quote": "'"}, {"delimiter": "\t", "quote_char": "'"}),
    ("a;b\n1;2,5\n", {"delimiter": ";"}, {"delimiter": ";"}),
    ("a|b\n1|2\n", {"delimiter": "|"}, {"delimiter": "|"}),
    ('a,b\n"x",1\n', {"quote": False}, {"quote_char": False}),
    ('a,b\nx\\,y,"q\\"z"\n', {"escape": "\\"}, {"escape_char": "\\"}),
]


def test_dialects(tmp_path: Path) -> None:
    for content, ours, arrow in DIALECTS:
        with case(content):
            path = write(tmp_path, content)
            parse = pc.ParseOptions(**arrow)
            there = theirs(path, parse=parse)
            assert_same(read_back(data.read_csv(path, **ours)), there)
            assert_same(read_back(data.read_csv(path, parse_options=parse)), there)


def test_headers_types_and_nulls_by_our_options_and_by_those_of_pyarrow(tmp_path: Path) -> None:
    path = write(tmp_path, "# by hand\nk,1,x,18446744073709551615\n-,2,-,0\n")
    names = ["a", "b", "c", "d"]
    types = {"b": pa.float32(), "d": pa.uint64(), "a": pa.string()}
    read = pc.ReadOptions(skip_rows=1, column_names=names)
    convert = pc.ConvertOptions(
        column_types=types, null_values=["-"], strings_can_be_null=True, include_columns=["d", "a", "b"]
    )
    there = theirs(path, read=read, convert=convert)
    assert there.column("a").to_pylist() == ["k", None]
    assert_same(read_back(data.read_csv(path, read_options=read, convert_options=convert)), there)
    ours = data.read_csv(
        path, skip_rows=1, header=False, column_names=names, columns=["d", "a", "b"],
        column_types={"b": "float32", "d": "uint64", "a": str}, null_values=["-"], strings_can_be_null=True,
    )  # fmt: skip
    assert_same(read_back(ours), there)
    bare = pc.ReadOptions(skip_rows=1, autogenerate_column_names=True)
    assert_same(read_back(data.read_csv(path, skip_rows=1, header=False)), theirs(path, read=bare))


TYPES: list[tuple[Any, list[str]]] = [
    (pa.int8(), ["-128", "127"]), (pa.uint16(), ["0", "65535"]), (pa.float32(), ["0.1", "16777217"]), (pa.float64(), ["1"]),
    (pa.bool_(), ["1", "false"]), (pa.string(), ["1", "007"]), (pa.large_string(), ["1"]), (pa.binary(), ["ab"]),
    (pa.date32(), ["2020-02-29"]), (pa.timestamp("s"), ["2020-02-29"]), (pa.timestamp("ms"), ["2020-01-01 00:00:00.125"]),
    (pa.timestamp("us", "UTC"), ["2020-01-01T00:00:00.5Z"]), (pa.timestamp("ns", "Europe/Madrid"), ["2020-01-01T00:00:00+01"]),
    (pa.time32("s"), ["10:11:12"]), (pa.decimal128(9, 3), ["1.125", "-7"]),
]  # fmt: skip


def test_types_that_are_asked_for(tmp_path: Path) -> None:
    for kind, values in TYPES:
        with case(kind):
            path = write(tmp_path, "\n".join(["a,b", *(f"{value},1" for value in values), ""]))
            there = theirs(path, convert=pc.ConvertOptions(column_types={"a": kind}))
            assert_same(read_back(data.read_csv(path, column_types={"a": kind})), there)


UNFIT = [
    ("int8", "128"),
    ("uint8", "-1"),
    ("timestamp[s]", "2020-01-01 00:00:00.5"),
    ("timestamp[s]", "2020-01-01T00:00:00Z"),
    ("timestamp[s, tz=UTC]", "2020-01-01T00:00:00"),
    ("bool", "yes"),
    ("date32", "2020-02-30"),
    ("float", "x"),
]


def test_a_value_that_its_type_cannot_hold_is_told_and_never_made_to_fit(tmp_path: Path) -> None:
    for kind, value in UNFIT:
        with case(kind):
            path = write(tmp_path, f"a\n\n{value}\n")
            with pytest.raises(StorageError) as raised:
                data.read_csv(path, column_types={"a": kind}).take_all()
            assert f"at line 3: `{value}` in column `a` is no " in str(raised.value)


def test_files_are_brought_together(tmp_path: Path) -> None:
    write(tmp_path, "a,b,c,d\n1,2,3,true\n", "1.csv")
    write(tmp_path, "d,c,a,b\n0,x,,2.5\n", "2.csv")
    assert data.read_csv(tmp_path).take_all() == [
        {"a": 1, "b": 2.0, "c": "3", "d": True},
        {"a": None, "b": 2.5, "c": "x", "d": False},
    ]
    write(tmp_path, "a,b,d\n1,2,1\n", "3.csv")
    with pytest.raises(ConfigError) as raised:
        data.read_csv(tmp_path)
    assert f"`{tmp_path}/1.csv` and `{tmp_path}/3.csv` have different columns" in str(raised.value)
    assert "`c` is only in the first" in str(raised.value)


def packed(codec: str) -> Callable[[bytes], bytes]:
    def pack(plain: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(plain)
        return bytes(sink.getvalue())

    return pack


PACKED = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": packed("zstd"), "lz4": packed("lz4"),
}  # fmt: skip


@pytest.mark.parametrize("ending", PACKED)
def test_compressed_files(tmp_path: Path, ending: str) -> None:
    content = 'a,b\n1,"x\ny"\n' + "".join(f"{n},{n}\n" for n in range(5000))
    plain = content.encode()
    path = write(tmp_path, PACKED[ending](plain), f"a.csv.{ending}")
    rows = read_back(data.read_csv(path))
    assert_same(rows, theirs(write(tmp_path, content, "plain.csv")))
    cut = write(tmp_path, path.read_bytes()[:-20], f"cut.csv.{ending}")
    with pytest.raises(CarrilError, match=r"cut\.csv"):
        data.read_csv(cut).take_all()
    assert data.read_csv(tmp_path, max_errors=1).count() == 2 * 5001


def test_a_file_of_many_pieces_has_the_rows_of_pyarrow(tmp_path: Path) -> None:
    lines = [f'{n},"line {n}\nand, ""more""",{n / 7}' for n in range(60_000)]
    path = write(tmp_path, "\n".join(["a,b,c", *lines]))
    ours, there = read_back(data.read_csv(path)), theirs(path)
    assert ours.schema.types == there.schema.types
    assert is_same(ours.to_pydict(), there.to_pydict())
