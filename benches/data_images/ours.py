"""JPEGs to normalised tensors: decoded and resized by the reader, normalised where the batches are made."""

import sys
from pathlib import Path

import torch

from carril import data

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.passes import paths, rate, tell

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1) * 255
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1) * 255


def normalised(batch: dict) -> torch.Tensor:
    pictures = torch.tensor(batch["image"]).permute(0, 3, 1, 2)
    return pictures.to(torch.float32, memory_format=torch.contiguous_format).sub_(MEAN).div_(DEVIATION)


def one_pass() -> int:
    pictures = data.read_images(paths(), size=(224, 224), mode="RGB")
    seen = 0
    for batch in pictures.iter_torch_batches(batch_size=64, collate_fn=normalised):
        assert batch.shape[1:] == (3, 224, 224) and batch.is_contiguous()
        seen += len(batch)
    return seen


tell(**rate(one_pass))
