"""Makes the files that the measures of data read, once: `python make_data.py DIRECTORY KIND FILES EACH`.

It runs in the environment of the rivals: what is read was written by pyarrow and Pillow, and not by us. A file that is there
is complete and stays: each is written under another name first. The same number makes the same file. From the seventeenth on,
a file of Parquet is another name of one of the first sixteen, so that many rows take no more of the disk.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FEATURES = 32
DIFFERENT = 16


def parquet(path: Path, number: int, rows: int) -> None:
    """Features as columns of their own, and a label."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    dice = np.random.default_rng(number)
    columns = {f"x{feature}": dice.standard_normal(rows, dtype=np.float32) for feature in range(FEATURES)}
    pq.write_table(pa.table({**columns, "label": dice.integers(0, 10, rows)}), path)


def csv(path: Path, number: int, rows: int) -> None:
    """Floats with all their digits, integers of several lengths, words with commas, and names."""
    import numpy as np
    import pyarrow as pa
    from pyarrow.csv import write_csv

    dice = np.random.default_rng(number)
    words = np.array(["alpha", "beta", "gamma, delta", "plain text", "x"])
    columns = {f"f{column}": dice.standard_normal(rows) for column in range(5)}
    columns |= {f"i{column}": dice.integers(0, 10 ** (2 * column + 1), rows) for column in range(4)}
    columns["word"] = words[dice.integers(0, len(words), rows)]
    columns["name"] = np.array([f"id-{row:08d}" for row in range(rows)])
    write_csv(pa.table(columns), path)


def image(path: Path, number: int, _: int) -> None:
    """A coloured cloud with noise, of the size that photographs for training usually have."""
    import numpy as np
    from PIL import Image

    dice = np.random.default_rng(number)
    height, width = 375 + number % 3 * 20, 500
    cloud = Image.fromarray(dice.integers(0, 256, (height // 25, width // 25, 3), dtype=np.uint8))
    smooth = np.asarray(cloud.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    noisy = (smooth + dice.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(path, quality=90, format="JPEG")


KINDS: dict[str, tuple[str, Callable[[Path, int, int], None]]] = {
    "parquet": ("parquet", parquet),
    "csv": ("csv", csv),
    "images": ("jpg", image),
}


def main() -> None:
    directory, kind, files, each = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    ending, make = KINDS[kind]
    directory.mkdir(parents=True, exist_ok=True)

    different = min(files, DIFFERENT) if kind == "parquet" else files

    def path(number: int) -> Path:
        return directory / f"part-{number:05d}.{ending}"

    def one(number: int) -> None:
        if not path(number).exists():
            half = directory / f".{path(number).name}.half"
            make(half, number, each)
            half.rename(path(number))

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(one, range(different)))
    for number in range(different, files):
        if not path(number).exists():
            path(number).hardlink_to(path(number % DIFFERENT))


if __name__ == "__main__":
    main()
