"""Pictures are read, changed by a pool of processes, and streamed into training, end to end. It runs with Ray and with carril.

The pictures are JPEGs that the script makes itself: four kinds of coloured clouds with noise, so many that they take
`--data-size-gb` on disk. What is read and not yet trained on stays within `--data-memory-gb`, however many there are.
(Ray wants a CPU for each worker and for each process of the pool, and some to read with.)

Run it with `carril as-ray -- python examples/image_pipeline.py --data-size-gb=0.02 --num-epochs=1 --num-workers=1 --smoke-test`.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import ray
import torch
from PIL import Image
from ray import train
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

KINDS = 4
SIDE = 512
# Neighbouring kinds differ in their colours.
COLOURS = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [180, 180, 40]], dtype=np.float32)


def make_picture(path: str, kind: int, number: int) -> int:
    """Writes one picture, and says how many bytes it takes."""
    dice = np.random.default_rng(number)
    rough = COLOURS[kind] + dice.normal(0, 60, (8, 8, 3))
    cloud = Image.fromarray(rough.clip(0, 255).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    noise = dice.integers(-24, 25, (SIDE, SIDE, 1), dtype=np.int16)
    Image.fromarray((np.asarray(cloud) + noise).clip(0, 255).astype(np.uint8)).save(path, quality=92)
    return os.path.getsize(path)


def make_pictures(directory: str, gigabytes: float) -> int:
    """Fills a directory, and says how many pictures it has."""
    for kind in range(KINDS):
        os.mkdir(os.path.join(directory, f"kind-{kind}"))

    def path(number: int) -> str:
        return os.path.join(directory, f"kind-{number % KINDS}", f"{number:06d}.jpg")

    each = make_picture(path(0), 0, 0)
    count = max(int(gigabytes * 1e9 / each), KINDS)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda number: make_picture(path(number), number % KINDS, number), range(1, count)))
    return count


class CropAndNormalize:
    """What happens to each batch, in processes of its own: a random part of each picture, around zero, channels first."""

    def __init__(self, side: int):
        self.side = side
        self.mean = np.array([0.485, 0.456, 0.406], dtype=np.float32)
        self.deviation = np.array([0.229, 0.224, 0.225], dtype=np.float32)
        self.dice = np.random.default_rng()

    def __call__(self, batch: dict) -> dict:
        pictures = batch["image"]
        top, left = (int(self.dice.integers(0, room + 1)) for room in np.subtract(pictures.shape[1:3], self.side))
        part = pictures[:, top : top + self.side, left : left + self.side].astype(np.float32) / 255
        inputs = ((part - self.mean) / self.deviation).transpose(0, 3, 1, 2)
        kinds = [int(os.path.basename(os.path.dirname(path)).split("-")[1]) for path in batch["path"]]
        return {"image": np.ascontiguousarray(inputs), "label": np.array(kinds)}


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=7, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, KINDS),
    )


def train_loop_per_worker(config: dict) -> None:
    torch.manual_seed(0)
    model = prepare_model(network())
    loss_function = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    shard = train.get_dataset_shard("train")
    for epoch in range(config["num_epochs"]):
        began, seen, correct, total_loss, batches = time.perf_counter(), 0, 0, 0.0, 0
        for batch in shard.iter_torch_batches(batch_size=config["batch_size"]):
            guess = model(batch["image"])
            loss = loss_function(guess, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(batch["label"])
            correct += (guess.argmax(1) == batch["label"]).sum().item()
            total_loss, batches = total_loss + loss.item(), batches + 1
        metrics = {
            "epoch": epoch,
            "loss": total_loss / batches,
            "accuracy": correct / seen,
            "pictures": seen,
            "pictures_per_s": seen / (time.perf_counter() - began),
        }
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
                checkpoint = Checkpoint.from_directory(directory)
            train.report(metrics, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-size-gb", type=float, default=1, help="how much the pictures take on disk")
    parser.add_argument("--data-memory-gb", type=float, default=1, help="how much may be read ahead of the training")
    parser.add_argument("--num-epochs", type=int, default=2, help="how often each picture is seen")
    parser.add_argument("--num-workers", type=int, default=1, help="how many workers train")
    parser.add_argument("--smoke-test", action="store_true", default=False, help="without a GPU")
    arguments = parser.parse_args()

    limits = ray.data.ExecutionResources.for_limits(object_store_memory=arguments.data_memory_gb * 1e9)
    ray.data.DataContext.get_current().execution_options.resource_limits = limits
    with tempfile.TemporaryDirectory() as directory:
        count = make_pictures(directory, arguments.data_size_gb)
        print(f"{count} pictures are made", flush=True)
        dataset = ray.data.read_images(directory, size=(256, 256), mode="RGB", include_paths=True)
        dataset = dataset.random_shuffle().map_batches(
            CropAndNormalize,
            fn_constructor_args=(224,),
            batch_size=32,
            compute=ray.data.ActorPoolStrategy(size=2),
        )
        trainer = TorchTrainer(
            train_loop_per_worker,
            train_loop_config={"lr": 0.01, "batch_size": 32, "num_epochs": arguments.num_epochs},
            scaling_config=ScalingConfig(num_workers=arguments.num_workers, use_gpu=not arguments.smoke_test),
            datasets={"train": dataset},
        )
        metrics = trainer.fit().metrics
    print(
        f"accuracy {metrics['accuracy']:.1%}, loss {metrics['loss']:.3f} on {metrics['pictures']} of {count} pictures "
        f"in epoch {metrics['epoch']}, {metrics['pictures_per_s']:.0f} a second"
    )


if __name__ == "__main__":
    main()
