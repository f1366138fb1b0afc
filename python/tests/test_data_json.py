"""JSON beside `pyarrow.json` on the same files: lines and arrays, what is missing, what is mixed, what is damaged."""

import bz2
import gzip
import json
import lzma
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pytest
from data_tables import assert_same, case, is_same, read_back

from carril import data
from carril.exceptions import CarrilError, StorageError


def write(directory: Path, content: str | bytes, name: str = "a.json") -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


AS_PYARROW = {
    "plain": '{"a":1,"b":"x"}\n{"a":2,"b":"y"}\n',
    "without a last line end": '{"a":1}',
    "windows": '{"a":1}\r\n{"a":2}\r\n',
    "byte order mark": '\ufeff{"a":1}\n',
    "empty lines": '\n\n{"a":1}\n\n\n{"a":2}\n\n',
    "blanks": '  {"a" : 1 }  \n\t{ "a":2}\n',
    "records over lines": '{\n "a": 1\n}\n{\n "a": 2\n}\n',
    "two in a line": '{"a":1}{"a":2}\n',
    "nested": '{"a":{"b":[1,2],"c":{"d":null}}}\n{"a":null}\n{"a":{"c":{"d":"x"}}}\n',
    "missing keys": '{"a":1}\n{"b":2}\n{}\n',
    "keys in another order": '{"b":1,"a":2}\n{"c":1,"b":2}\n',
    "whole and real": '{"a":1,"b":2.5,"c":1.0}\n{"a":2.5,"b":1,"c":2}\n',
    "null": '{"a":null,"b":null}\n{"a":1,"b":null}\n',
    "escapes": r'{"a":"\u00e9\n\t\"\\\/ \ud83c\udf89 \u0000"}' + "\n",
    "escapes of rare characters": r'{"a":"\ud842\udfb7 \uDBFF\uDFFF \\ud842"}' + "\n",
    "unicode": '{"é":"日本"}\n',
    "an empty key": '{"":1}\n',
    "truth values": '{"a":true}\n{"a":false}\n{"a":null}\n',
    "the largest integers": '{"a":9223372036854775807}\n{"a":-9223372036854775808}\n',
    "larger than integers": '{"a":9223372036854775808}\n{"a":123456789012345678901234567890}\n',
    "exponents": '{"a":1e5}\n{"a":-2.5E-3}\n',
    "precise floats": '{"a":0.30000000000000004}\n{"a":1e308}\n{"a":5e-324}\n',
    "what Python writes for no number": '{"a":NaN}\n{"a":Infinity}\n{"a":-Infinity}\n{"a":1}\n',
    "empty lists": '{"a":[],"b":[]}\n{"a":[1],"b":[]}\n',
    "empty objects": '{"a":{},"b":{}}\n{"a":{"b":1},"b":{}}\n',
    "whole and real in lists": '{"a":[1,2.5]}\n{"a":null}\n',
    "lists of objects": '{"a":[{"b":1},{"c":"x"}]}\n{"a":[]}\n',
    "deep": '{"a":' + "[" * 50 + "1" + "]" * 50 + "}\n",
}


def test_what_pyarrow_reads_is_read_as_by_pyarrow(tmp_path: Path) -> None:
    for name in AS_PYARROW:
        with case(name):
            path = write(tmp_path, AS_PYARROW[name])
            assert_same(read_back(data.read_json(path)), pj.read_json(path))


# Where we do otherwise, on purpose: what is read, as types and rows.
OTHERWISE: dict[str, tuple[str, list[Any], list[dict[str, Any]]]] = {
    # pyarrow knows lines only.
    "an array": ('[{"a":1},{"a":2}]', [pa.int64()], [{"a": 1}, {"a": 2}]),
    "an array over lines": ('[\n {\n "a": 1\n },\n {"a": 2}\n]\n', [pa.int64()], [{"a": 1}, {"a": 2}]),
    "arrays one after the other": ('[{"a":1}]\n[{"a":2}]\n', [pa.int64()], [{"a": 1}, {"a": 2}]),
    "an empty array": ("[]", [], []),
    "nothing": ("", [], []),
    # JSON says what is a text: pyarrow makes times of some, and forgets their zones.
    "dates": ('{"a":"2020-01-01","b":"2020-01-01T10:11:12+02:00"}\n', [pa.string()] * 2,
              [{"a": "2020-01-01", "b": "2020-01-01T10:11:12+02:00"}]),
    # Scalars of two kinds are text, as in CSV: pyarrow gives up.
    "a number and a text": ('{"a":1}\n{"a":"x"}\n{"a":true}\n', [pa.string()], [{"a": "1"}, {"a": "x"}, {"a": "true"}]),
    "both in a list": ('{"a":[1,"x"]}\n', [pa.list_(pa.string())], [{"a": ["1", "x"]}]),
    # pyarrow moves the values of such a list to the front.
    "null in a list": ('{"a":[null,1]}\n', [pa.list_(pa.int64())], [{"a": [None, 1]}]),
    # The last one counts, as in Python; pyarrow gives up.
    "a key twice": ('{"a":1,"a":2}\n', [pa.int64()], [{"a": 2}]),
    # A zero with a sign is a real number.
    "minus zero": ('{"a":-0}\n', [pa.float64()], [{"a": -0.0}]),
}  # fmt: skip


def test_what_is_read_otherwise(tmp_path: Path) -> None:
    for name in OTHERWISE:
        with case(name):
            content, types, rows = OTHERWISE[name]
            path = write(tmp_path, content)
            ours = read_back(data.read_json(path))
            assert (ours.schema.types, is_same(ours.to_pylist(), rows)) == (types, True), ours
            try:
                there = pj.read_json(path)
            except pa.ArrowInvalid:
                continue
            assert there.schema.types != types or not is_same(there.to_pylist(), rows), "it is read as by pyarrow"


def test_what_python_writes_is_what_python_reads(tmp_path: Path) -> None:
    rows = [
        {"x": math.nan, "y": [1.5, math.inf, -math.inf], "z": {"w": "NaN is no Infinity"}, "t": 'a "NaN" \\'},
        {"x": 2, "y": [], "z": {"w": None}, "t": "ä\u2028\x7f"},
    ]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    assert is_same(read_back(data.read_json(path)).to_pylist(), [rows[0], {**rows[1], "x": 2.0}])
    array = write(tmp_path, json.dumps(rows, indent=2, ensure_ascii=False), "b.json")
    assert is_same(read_back(data.read_json(array)).to_pylist(), read_back(data.read_json(path)).to_pylist())


BAD: dict[str, tuple[str | bytes, str]] = {
    "a record that is not closed": ('{"a":1}\n{"a":2\n{"a":3}\n', "at line 2"),
    "a missing colon": ('{"a":1}\n\n{"a" 2}\n{"a":3}\n', "at line 3"),
    "the first record": ('{"a":1\n{"a":2}\n', "at line 1: it is no JSON record"),
    "a comma too many": ('{"a":1,}\n', "at line 1: it is no JSON record"),
    "no JSON": ("\nhello\n", "at line 2: it is no JSON record"),
    "the end is missing": ('{"a":1}\n{"a":', "at line 2"),
    "an array that is never closed": ('[{"a":1},{"a":2}', "it is cut short: the array is never closed"),
    "damage in an array": ('[{"a":1},\n{"a":2},\n{"a":}\n]', "at line 3"),
    "damage in an array over lines": ('[\n{\n"a":1\n},\n{\n"a" 2\n}\n]', "at line 5"),
    "half a pair of surrogates": (r'{"a":"\ud83c"}' + "\n", "at line 1"),
    "another encoding": (b'{"a":"x"}\n{"a":"\xff"}\n', "at line 2"),
    "numbers": ("1\n2\n", "at line 1: `1` is no record"),
    "an array of numbers": ("[\n1,2,3]", "at line 2: `1` is no record"),
    "null in an array": ('[{"a":1},\nnull]', "at line 2: `null` is no record"),
    "an object and a text": ('{"a":{"b":1}}\n{"a":"x"}\n', "at line 2: `a` has a text here and an object before"),
    "a list and an object": (
        '{"k":{"a":[1]}}\n{"k":{"a":{"b":1}}}\n',
        "at line 2: `k.a` has an object here and a list before",
    ),
    "both in a list": ('{"a":{"b":[1,{"c":1}]}}\n', "at line 1: `a.b` has an object here and a number before"),
    "commas after lines": ('{"a":1},\n{"a":2}\n', "at line 1"),
}


def test_what_is_wrong_is_told_with_the_file_and_the_line(tmp_path: Path) -> None:
    for name in BAD:
        with case(name):
            content, text = BAD[name]
            path = write(tmp_path, content)
            with pytest.raises(StorageError) as raised:
                data.read_json(path).take_all()
            told = str(raised.value)
            assert f"cannot read `{path}`" in told and text in told, told
            assert "Error" not in told and "error:" not in told, told
            with pytest.raises((pa.ArrowInvalid, UnicodeDecodeError)):
                pj.read_json(path).to_pylist()


def test_what_comes_after_the_types_were_found(tmp_path: Path) -> None:
    many = "".join(f'{{"a":{n}}}\n' for n in range(1000))
    path = write(tmp_path, many + '{"a":1,"late":2}\n')
    options = {"infer_bytes": 1000}
    with pytest.raises(StorageError) as raised:
        data.read_json(path, **options).take_all()
    assert "at line 1001" in str(raised.value) and "`infer_bytes`" in str(raised.value)
    assert data.read_json(path, infer_bytes=0).take_all()[-1] == {"a": 1, "late": 2}
    typed = data.read_json(path, column_types={"late": int}, **options)
    assert typed.take_all()[-1] == {"a": 1, "late": 2}
    path = write(tmp_path, many + '{"a":"text"}\n')
    with pytest.raises(StorageError, match="at line 1001"):
        data.read_json(path, **options).take_all()


def test_types_and_columns_that_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a":1,"b":"2020-01-01T10:11:12Z","c":[1]}\n{"a":null,"b":null,"c":null}\n')
    types = {"a": "float32", "b": "timestamp[us, tz=UTC]", "c": "list<double>"}
    ours = read_back(data.read_json(path, column_types=types, columns=["c", "b", "a"]))
    assert [str(kind) for kind in ours.schema.types] == ["list<item: double>", "timestamp[us, tz=UTC]", "float"]
    assert ours.column("b").cast(pa.int64()).to_pylist() == [1_577_873_472_000_000, None]
    with pytest.raises(CarrilError, match="there is no column `z`; there are `a`, `b`, `c`"):
        data.read_json(path, columns=["z"])


def test_keys_that_some_files_lack_are_null(tmp_path: Path) -> None:
    write(tmp_path, '{"a":1,"s":{"x":1}}\n', "1.json")
    write(tmp_path, '[{"b":2.5,"s":{"y":"t"}}]', "2.json")
    write(tmp_path, "", "3.json")
    assert data.read_json(tmp_path).take_all() == [
        {"a": 1, "s": {"x": 1, "y": None}, "b": None},
        {"a": None, "s": {"x": None, "y": "t"}, "b": 2.5},
    ]
    write(tmp_path, '{"s":[1]}\n', "4.json")
    with pytest.raises(CarrilError) as raised:
        data.read_json(tmp_path)
    assert "1.json" in str(raised.value) and "4.json" in str(raised.value) and "`s`" in str(raised.value)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
def test_compressed_files(tmp_path: Path, pack: Any, request: pytest.FixtureRequest) -> None:
    ending = request.node.callspec.id
    rows = [{"a": n, "b": [str(n)] * (n % 3)} for n in range(3000)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for content in (lines, json.dumps(rows)):
        path = write(tmp_path, pack(content.encode()), f"a.jsonl.{ending}")
        assert data.read_json(tmp_path).take_all() == rows
    write(tmp_path, pack(lines.replace('{"a": 2000', "{a: 2000").encode()), f"a.jsonl.{ending}")
    with pytest.raises(StorageError, match=f"{path.name}` at line 2001"):
        data.read_json(tmp_path).take_all()


def test_damaged_files_are_passed_over_when_that_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, '{"a":1}\n', "1.json")
    write(tmp_path, '{"a":2}\n{"a"\n', "2.json")
    write(tmp_path, "no JSON", "3.json")
    with pytest.raises(StorageError, match=r"3\.json"):
        data.read_json(tmp_path)
    with pytest.raises(StorageError, match=r"2\.json"):
        data.read_json(tmp_path, max_errors=1).take_all()
    assert data.read_json(tmp_path, max_errors=2).take_all() == [{"a": 1}]


def test_a_number_that_is_not_whole_is_not_made_whole(tmp_path: Path) -> None:
    """The types are found in the beginning of a file, and what comes later is not bent to them."""
    path = tmp_path / "late.json"
    path.write_text(
        '{"a": 1, "b": {"c": [1]}}\n' * 1000 + '{"a": 1.5, "b": {"c": [2]}}\n' + '{"a": 3, "b": {"c": [2.5]}}\n'
    )
    told = "late.json` at line 1001: .*1.5.*raise `infer_bytes`, or give the type with `column_types`"
    with pytest.raises(CarrilError, match=told):
        data.read_json(str(path), infer_bytes=1000).take_all()
    with pytest.raises(CarrilError, match=r"late.json` at line 1001"):
        data.read_json(str(path), column_types={"a": "int64"}).take_all()
    assert data.read_json(str(path)).take_all()[1000:] == [{"a": 1.5, "b": {"c": [2.0]}}, {"a": 3.0, "b": {"c": [2.5]}}]
    path.write_text('{"a": 1152921504606846977, "b": [{"c": -5}, null]}\n')
    assert data.read_json(str(path)).take_all() == [{"a": 2**60 + 1, "b": [{"c": -5}, None]}]
