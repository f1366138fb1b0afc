"""A real S3 server for tests: `carril-test-s3`, with a bucket of its own, on this machine.

It checks credentials, and it keeps its objects as files, so a test sees what is in the bucket without asking our own
code. It does not carry the mark of the test session: it outlives single tests, and ends when its input is closed.
"""

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from faulty_proxy import FaultyProxy

BINARY = Path(__file__).resolve().parents[2] / "target" / "release" / "carril-test-s3"
BUCKET = "bucket"
ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"


def without_credentials() -> dict[str, str]:
    """The environment with nothing in it that leads to a store of anybody's."""
    foreign = ("AWS_", "GOOGLE_", "AZURE_", "GCS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


class S3Server:
    """A running server."""

    def __init__(self, root: Path) -> None:
        assert BINARY.exists(), f"`{BINARY}` is not there: `make test-python` builds it"
        self.root = root
        self.bucket.mkdir(parents=True)
        self._process = subprocess.Popen(
            [str(BINARY), "--root", str(root), "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the tests, not for it.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def bucket(self) -> Path:
        """Where the objects are: a file each, under their keys."""
        return self.root / BUCKET

    def variables(self, port: int | None = None, **changes: str) -> dict[str, str]:
        """What a user sets to reach it, directly or through a proxy on another port."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            **changes,
        }

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(10) == 0


@pytest.fixture(name="s3", scope="module")
def s3_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for a module."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture(name="s3_variables", scope="module")
def s3_variables_fixture(s3: S3Server) -> Iterator[None]:
    """The server is the one that this process, and a head that it starts from now on, finds in the environment."""
    before = dict(os.environ)
    os.environ.update(s3.variables())
    yield
    for name in s3.variables():
        os.environ.pop(name)
    os.environ.update(before)


class Place(NamedTuple):
    """A prefix in the bucket: what a user types, and where its objects are."""

    uri: str
    directory: Path

    def objects(self) -> list[str]:
        """The keys below it, without the prefix, sorted."""
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file())


@pytest.fixture(name="place")
def place_fixture(s3: S3Server) -> Place:
    """A prefix of the test's own, with nothing below it."""
    prefix = f"some/where-{uuid.uuid4().hex[:8]}"
    return Place(f"s3://{BUCKET}/{prefix}", s3.bucket / prefix)


def set_variables(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """The environment with these variables and no others of a store, until the test is over."""
    for name in set(os.environ) - set(without_credentials()):
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(name="proxied")
def proxied_fixture(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FaultyProxy]]:
    """Makes a proxy before the server, and a head that has no other way to it. Its arguments are the proxy's."""
    import carril

    proxies = []

    def make(**faults: Any) -> FaultyProxy:
        proxy = FaultyProxy(s3.port, **faults)
        proxies.append(proxy)
        set_variables(monkeypatch, s3.variables(proxy.port))
        carril.shutdown()
        carril.init(num_cpus=8)
        return proxy

    yield make
    try:
        for proxy in proxies:
            for hold in proxy.holds:
                hold.release()
        carril.shutdown()
    finally:
        for proxy in proxies:
            proxy.close()
