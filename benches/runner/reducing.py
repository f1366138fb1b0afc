"""What a worker of the collective benches does, whoever carries its values: timed all-reduces, and timed steps of DDP."""

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any


def all_reduces(reduce: Callable[[Any], object], length: int) -> dict[str, float]:
    """The median time of an all-reduce of so many values of float32, in place. Two ranks give ones, and get their maximum."""
    import torch

    torch.set_num_threads(1)
    values = torch.ones(length)
    took = []
    times = int(os.environ["BENCH_TIMES"])
    for turn in range(times + times // 4):
        begin = time.perf_counter()
        reduce(values)
        if turn >= times // 4:
            took.append(time.perf_counter() - begin)
    assert bool((values == 1).all())
    return {"seconds": median(took)}


def ddp_steps(parallel: Callable[[Any], Any]) -> dict[str, float]:
    """How much longer a forward and backward pass takes when DDP sends its gradients than when it sends nothing.

    What DDP does anyway, copying gradients into buckets and back, is in both: the one that sends nothing has a hook which
    returns each bucket as it is. `alone_s` is the pass without buckets (`no_sync`).
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(8, 2048)

    def perceptron() -> Any:
        # 25 million parameters.
        return torch.nn.Sequential(*(m for _ in range(6) for m in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())))

    def keep(state: None, bucket):  # torch refuses annotations that are not its own classes
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model, silent = parallel(perceptron()), DistributedDataParallel(perceptron())
    silent.register_comm_hook(None, keep)

    def step(model: Any) -> float:
        model.zero_grad()
        # A pass that sends nothing leaves the ranks apart: what one is ahead is not the next one's communication.
        torch.distributed.barrier()
        begin = time.perf_counter()
        model(inputs).square().mean().backward()
        return time.perf_counter() - begin

    def turn() -> tuple[float, float, float]:
        sent, kept = step(model), step(silent)
        with silent.no_sync():
            return sent, kept, step(silent)

    # The first steps put the buckets in order.
    for _ in range(3):
        turn()
    turns = [turn() for _ in range(int(os.environ["BENCH_TIMES"]))]
    sent, kept, alone = (median(took) for took in zip(*turns, strict=True))
    # Of each turn, because the machine's own speed is not that of the turn before.
    seconds = median(sent - kept for sent, kept, _ in turns)
    return {"seconds": seconds, "step_s": sent, "silent_s": kept, "alone_s": alone}
