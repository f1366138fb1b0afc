"""All-reduce of 4 KB of float32 between two processes of one host, with torch's Gloo: for `torchrun`."""

import json
import sys
from pathlib import Path

import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.reducing import all_reduces

dist.init_process_group("gloo")
found = all_reduces(lambda values: dist.all_reduce(values, dist.ReduceOp.MAX), 1_024)
if dist.get_rank() == 0:
    print("BENCH " + json.dumps(found))
dist.destroy_process_group()
