"""A script as it is written for torchrun: it finds its rank in the environment and makes its own process group.

It knows nothing of carril. `torchrun_style.py` runs it on two workers, and so does
`torchrun --nproc-per-node 2 examples/torchrun_script.py`.
"""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wanted = torch.tensor([[1.0], [-2.0], [3.0], [-4.0]])
    for _ in range(200):
        inputs = torch.randn(32, 4)
        loss = nn.functional.mse_loss(model(inputs), inputs @ wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # The ranks drew different inputs and hold the same weights: that is what the group is for.
    weight = model.module.weight.detach()
    others = [torch.zeros_like(weight) for _ in range(size)]
    dist.all_gather(others, weight)
    assert all(torch.equal(weight, other) for other in others)
    dist.destroy_process_group()
    # The model holds the group; where both go only with the interpreter, torch may end it with SIGABRT.
    del model, optimizer
    gc.collect()
    if rank == 0:
        print(f"{size} ranks agree: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
