"""The same file to the same server with boto3's transfer, as it is out of the box."""

import json
import os
import sys
import time
from pathlib import Path

import boto3

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.payload import one_file, remove, stored_bytes
from runner.s3 import BUCKET, s3_server

STORAGE = os.environ["BENCH_STORAGE"]
SIZE = int(os.environ.get("BENCH_BYTES", "1000000000"))

source, bucket = one_file(Path(STORAGE, "source"), SIZE), Path(STORAGE, "s3")
with s3_server(bucket):
    client = boto3.client("s3")
    begin = time.perf_counter()
    client.upload_file(str(source / "model"), BUCKET, "runs/model")
    seconds = time.perf_counter() - begin
assert stored_bytes(bucket) == SIZE
print("BENCH " + json.dumps({"seconds": seconds}))
remove(STORAGE)
