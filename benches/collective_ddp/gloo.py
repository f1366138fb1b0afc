"""What averaging the gradients adds to a step of DDP, two processes of one host, with torch's Gloo: for `torchrun`."""

import json
import sys
from pathlib import Path

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.reducing import ddp_steps

dist.init_process_group("gloo")
found = ddp_steps(DistributedDataParallel)
if dist.get_rank() == 0:
    print("BENCH " + json.dumps(found))
dist.destroy_process_group()
