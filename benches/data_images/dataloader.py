"""JPEGs to normalised tensors with torch's DataLoader: Pillow decodes and resizes in BENCH_WORKERS processes."""

import os
import sys
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import paths, rate, tell

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1) * 255
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1) * 255


class Pictures(Dataset):
    def __init__(self) -> None:
        self.paths = paths()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        with Image.open(self.paths[number]) as picture:
            small = picture.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(numpy.array(small)).permute(2, 0, 1)
        return pixels.to(torch.float32, memory_format=torch.contiguous_format).sub_(MEAN).div_(DEVIATION)


def one_pass() -> int:
    seen = 0
    for batch in DataLoader(Pictures(), batch_size=64, num_workers=int(os.environ["BENCH_WORKERS"])):
        assert batch.shape[1:] == (3, 224, 224)
        seen += len(batch)
    return seen


tell(**rate(one_pass))
