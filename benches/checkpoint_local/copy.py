"""The same file with `cp`, and `sync` of what it made."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.payload import one_file, remove, stored_bytes

STORAGE = os.environ["BENCH_STORAGE"]
SIZE = int(os.environ.get("BENCH_BYTES", "1000000000"))

source, target = one_file(Path(STORAGE, "source"), SIZE), Path(STORAGE, "copy")
begin = time.perf_counter()
subprocess.run(["cp", "-r", str(source), str(target)], check=True)
subprocess.run(["sync", str(target / "model"), str(target)], check=True)
seconds = time.perf_counter() - begin
assert stored_bytes(target) == SIZE
print("BENCH " + json.dumps({"seconds": seconds}))
remove(STORAGE)
