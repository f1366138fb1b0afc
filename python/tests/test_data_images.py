"""Images beside Pillow: every pixel of `Image.open(file).convert(mode).resize(size, BILINEAR)`, of every format and kind."""

import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from carril import data
from carril.exceptions import CarrilError, ConfigError, StorageError

MODES = ("L", "LA", "RGB", "RGBA")
# Of 255. Ours are the very same with Pillow 13; an older one resizes in another order.
_BOUND = 2
_SHAPES = ((1, 1), (2, 3), (8, 8), (17, 31), (33, 64), (63, 47), (3, 120), (90, 2))

Pixels = np.ndarray[Any, Any]


def _noise(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    return Image.fromarray(rng.integers(0, 256, (height, width, 4), dtype=np.uint8))


def _gradient(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (x + y) * 3 % 256, x * y % 256]
    return Image.fromarray(np.stack(channels, -1).astype(np.uint8))


def _text(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    colours = [tuple(int(part) for part in rng.integers(0, 256, 4)) for _ in range(4)]
    image = Image.new("RGBA", (width, height), colours[0])
    for number, colour in enumerate(colours[1:]):
        ImageDraw.Draw(image).text((width * number // 4, height * number // 4), "Carril", fill=colour)
    return image


def _pictures(seed: int = 0) -> "list[tuple[str, Image.Image]]":
    rng = np.random.default_rng(seed)
    kinds = {"noise": _noise, "gradient": _gradient, "text": _text}
    pairs = itertools.product(kinds.items(), _SHAPES)
    return [(f"{name}-{height}x{width}", make(rng, height, width)) for (name, make), (height, width) in pairs]


def _expected(path: str | Path, mode: str, size: tuple[int, int] | None) -> Pixels:
    with Image.open(path) as image:
        made = image.convert(mode)
    return np.asarray(made if size is None else made.resize((size[1], size[0]), Image.Resampling.BILINEAR))


def _check(directory: Path, modes: tuple[str, ...] = MODES, bound: int = _BOUND) -> None:
    """Every file of the directory, in every mode, as it is and in sizes that are larger and smaller than it."""
    files = sorted(directory.iterdir())
    assert files
    for mode, size in itertools.product(modes, (None, (24, 20), (5, 77), (70, 9))):
        rows = data.read_images(str(directory), mode=mode, size=size, include_paths=True).take_all()
        assert [row["path"] for row in rows] == [str(file) for file in files]
        for row in rows:
            expected = _expected(row["path"], mode, size)
            assert row["image"].shape == expected.shape, (row["path"], mode, size)
            off = np.abs(row["image"].astype(int) - expected.astype(int)).max()
            assert off <= bound, f"{row['path']} in {mode} at {size} is {off} off"


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:2", "4:2:0", "grey", "CMYK", "RGB"])
def test_jpeg(tmp_path: Path, sampling: str, progressive: bool) -> None:
    rng = np.random.default_rng(1)
    for name, image in _pictures():
        options: dict[str, Any] = {"quality": int(rng.integers(5, 101)), "progressive": progressive}
        if rng.random() < 0.3:
            options["restart_marker_blocks"] = 3
        if sampling.startswith("4"):
            options["subsampling"] = sampling
        converted = image.convert({"grey": "L", "CMYK": "CMYK"}.get(sampling, "RGB"))
        converted.save(tmp_path / f"{name}.jpg", keep_rgb=sampling == "RGB", **options)
    _check(tmp_path, ("L", "RGB"))


def _resampled(jpeg: bytes, factors: int, height: int, width: int) -> bytes:
    """The blocks of one sampling read as another that has as many: nonsense to look at, and a valid file."""
    at = jpeg.index(b"\xff\xc0")
    size = struct.pack(">HH", height, width)
    return jpeg[: at + 5] + size + jpeg[at + 9 : at + 11] + bytes([factors]) + jpeg[at + 12 :]


@pytest.mark.parametrize(
    ("written", "factors", "shape"), [("4:2:2", 0x12, (64, 24)), ("4:2:0", 0x41, (16, 96)), ("4:2:0", 0x14, (64, 24))]
)
def test_jpeg_in_samplings_that_cameras_choose(
    tmp_path: Path, written: str, factors: int, shape: tuple[int, int]
) -> None:
    for name, make in {"noise": _noise, "gradient": _gradient}.items():
        image = make(np.random.default_rng(2), 32, 48).convert("RGB")
        image.save(tmp_path / "as_it_is.jpg", subsampling=written, quality=95)
        jpeg = (tmp_path / "as_it_is.jpg").read_bytes()
        (tmp_path / f"{name}.jpg").write_bytes(_resampled(jpeg, factors, *shape))
        (tmp_path / "as_it_is.jpg").unlink()
    _check(tmp_path, ("RGB",))


@pytest.mark.parametrize("format", ["png", "tiff", "bmp", "gif", "webp"])
def test_other_formats(tmp_path: Path, format: str) -> None:
    for name, image in _pictures():
        opaque = image.convert("RGB")
        kinds = {"rgb": opaque, "grey": opaque.convert("L"), "palette": opaque.quantize(40), "few": opaque.quantize(3)}
        if format != "webp":
            kinds["bits"] = opaque.convert("1")
        if format in ("png", "tiff"):
            kinds["grey-alpha"] = image.convert("LA")
        if format != "bmp":
            kinds["rgba"] = image
        for kind, made in kinds.items():
            made.save(tmp_path / f"{name}-{kind}.{format}")
    _check(tmp_path)


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
def test_transparent_palettes_and_colours(tmp_path: Path) -> None:
    for name, image in _pictures():
        opaque, grey = image.convert("RGB"), image.convert("L")
        image.quantize(16, method=Image.Quantize.FASTOCTREE).save(tmp_path / f"{name}-alphas.png")
        for format in ("png", "gif"):
            opaque.quantize(16).save(tmp_path / f"{name}-index.{format}", transparency=1)
        opaque.save(tmp_path / f"{name}-colour.png", transparency=opaque.getpixel((0, 0)))
        grey.save(tmp_path / f"{name}-grey.png", transparency=grey.getpixel((0, 0)))
    # To `LA` Pillow makes transparent whatever is as bright as the colour.
    _check(tmp_path, ("L", "RGB", "RGBA"))


def test_sixteen_bits_and_other_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for number, (height, width) in enumerate(_SHAPES):
        sixteen = rng.integers(0, 600, (height, width)).astype(np.uint16)
        for format in ("png", "tiff"):
            Image.fromarray(sixteen).save(tmp_path / f"{number}.{format}")
        Image.fromarray(sixteen.astype(np.float32) - 20.5).save(tmp_path / f"{number}-float.tiff")
        Image.fromarray(sixteen.astype(np.int32) - 20).save(tmp_path / f"{number}-long.tiff")
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).convert("CMYK").save(
            tmp_path / f"{number}-cmyk.tiff"
        )
    _check(tmp_path)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "group4"])
def test_compressed_tiff(tmp_path: Path, compression: str) -> None:
    for name, image in _pictures():
        made = image.convert("1") if compression == "group4" else image.convert("RGB")
        made.save(tmp_path / f"{name}.tiff", compression=compression)
    _check(tmp_path, ("L", "RGB"))


def _bmp(bits: int, compression: int, pixels: bytes, table: bytes = b"", height: int = 3, width: int = 5) -> bytes:
    begin = 14 + 40 + len(table)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(pixels), 0, 0, 0, 0)
    return struct.pack("<2sIHHI", b"BM", begin + len(pixels), 0, 0, begin) + header + table + pixels


def test_bitmaps_that_pillow_reads_and_does_not_write(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows, palette = rng.bytes(60), rng.bytes(4 * 256)
    masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    runs = b"\x05\x07\x00\x00" + b"\x00\x05\x01\x02\x03\x04\x05\x00" + b"\x00\x00" + b"\x02\x09\x03\x08\x00\x01"
    (tmp_path / "555.bmp").write_bytes(_bmp(16, 0, rows[:36]))
    (tmp_path / "565.bmp").write_bytes(_bmp(16, 3, rows[:36], masks))
    (tmp_path / "32.bmp").write_bytes(_bmp(32, 0, rows))
    (tmp_path / "top-down.bmp").write_bytes(_bmp(24, 0, rows[:48], height=-3))
    (tmp_path / "runs8.bmp").write_bytes(_bmp(8, 1, runs, palette))
    (tmp_path / "runs4.bmp").write_bytes(_bmp(4, 2, b"\x05\x12\x00\x00\x05\x34\x00\x00\x05\x56\x00\x01", palette[:64]))
    _check(tmp_path)


def test_the_first_picture_of_several_and_no_turning(tmp_path: Path) -> None:
    frames = [image.convert("RGB") for name, image in _pictures() if name.endswith("33x64")]
    for format in ("gif", "webp", "tiff"):
        frames[0].save(tmp_path / f"several.{format}", save_all=True, append_images=frames[1:])
    exif = Image.Exif()
    exif[0x0112] = 6
    frames[0].save(tmp_path / "turned.jpg", exif=exif)
    _check(tmp_path, ("RGB",))


def _saved(directory: Path, format: str) -> bytes:
    path = directory / f"whole.{format}"
    _noise(np.random.default_rng(5), 40, 30).convert("RGB").save(path)
    content = path.read_bytes()
    path.unlink()
    return content


_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "header": lambda content: content[:20],
    "text": lambda content: b"this is no picture at all",
}


@pytest.mark.parametrize("format", ["jpg", "png", "tiff", "bmp", "gif", "webp"])
def test_damaged_pictures(tmp_path: Path, format: str) -> None:
    whole = _saved(tmp_path, format)
    for number, damage in enumerate(_DAMAGES.values()):
        (tmp_path / f"{number}-bad.{format}").write_bytes(damage(whole))
        (tmp_path / f"{number}-good.{format}").write_bytes(whole)
    with pytest.raises(StorageError, match=rf"cannot read `.*0-bad\.{format}`: it is empty"):
        data.read_images(str(tmp_path), mode="RGB").take_all()
    rest = data.read_images(str(tmp_path), mode="RGB", size=(8, 8), max_errors=4, include_paths=True)
    assert [Path(row["path"]).name for row in rest.take_all()] == [f"{number}-good.{format}" for number in range(4)]
    with pytest.raises(StorageError, match=rf"3-bad\.{format}`: it is no image of a known format"):
        data.read_images(str(tmp_path), mode="RGB", max_errors=3).take_all()


def test_any_change_of_a_byte_is_read_or_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    for format in ("jpg", "png", "tiff", "bmp", "gif", "webp"):
        whole = _saved(tmp_path, format)
        for number in range(60):
            changed = bytearray(whole)
            for place in rng.integers(0, min(len(whole), 800), 3):
                changed[place] = rng.integers(0, 256)
            (tmp_path / f"{number}.{format}").write_bytes(changed)
    rows = data.read_images(str(tmp_path), mode="RGB", size=(8, 8), max_errors=360).take_all()
    assert 0 < len(rows) <= 360
    assert all(row["image"].shape == (8, 8, 3) for row in rows)


def test_the_mode_that_all_files_have(tmp_path: Path) -> None:
    image = _noise(np.random.default_rng(7), 6, 5)
    for mode, shape in {"L": (6, 5), "LA": (6, 5, 2), "RGB": (6, 5, 3), "RGBA": (6, 5, 4)}.items():
        (tmp_path / mode).mkdir()
        image.convert(mode).save(tmp_path / mode / "a.png")
        (row,) = data.read_images(str(tmp_path / mode)).take_all()
        assert row["image"].shape == shape
        assert np.array_equal(row["image"], _expected(tmp_path / mode / "a.png", mode, None))
    shapes = {row["image"].shape for row in data.read_images([str(tmp_path / mode) for mode in MODES]).take_all()}
    assert shapes == {(6, 5, 3)}


def test_wrong_arguments(tmp_path: Path) -> None:
    _noise(np.random.default_rng(8), 6, 5).save(tmp_path / "a.png")
    with pytest.raises(ConfigError, match="`size"):
        data.read_images(str(tmp_path), size=(0, 5))
    with pytest.raises(CarrilError, match=r"has no `mode='CMYK'`\nhint: use one of `L`, `LA`, `RGB`"):
        data.read_images(str(tmp_path), mode="CMYK")
