"""The S3 server of the tests for one bench, with its credentials in the environment; slowed down where asked."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = _ROOT / "target" / "release" / "carril-test-s3"
BUCKET = "bucket"
_KEY, _SECRET = "bench-access-key", "bench-secret-key"


@contextmanager
def s3_server(directory: Path, bytes_per_second: float | None = None) -> Iterator[str]:
    """The URI of an empty bucket, whose objects are files below `directory`."""
    if not BINARY.exists():
        raise RuntimeError(f"`{BINARY}` is not there\nhint: `make bench` builds it")
    (directory / BUCKET).mkdir(parents=True)
    server = subprocess.Popen(
        [str(BINARY), "--root", str(directory), "--access-key", _KEY, "--secret-key", _SECRET],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    port = int(server.stdout.readline())
    proxy = None
    if bytes_per_second is not None:
        sys.path.insert(0, str(_ROOT / "python" / "tests"))
        from faulty_proxy import FaultyProxy

        proxy = FaultyProxy(port, bytes_per_second=bytes_per_second)
        port = proxy.port
    os.environ.update(
        AWS_ACCESS_KEY_ID=_KEY,
        AWS_SECRET_ACCESS_KEY=_SECRET,
        AWS_REGION="us-east-1",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
    )
    try:
        yield f"s3://{BUCKET}/runs"
    finally:
        if proxy is not None:
            proxy.close()
        server.stdin.close()
        server.wait(10)
