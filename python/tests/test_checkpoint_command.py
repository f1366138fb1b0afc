"""`carril checkpoints RUN` and `carril verify PATH`: what is there, how large, with which metrics, and whether it is whole.

Both work on a run that is over, on any storage, without a head. `checkpoints` lists; the exit code of `verify` says whether
all is well (0) or something is damaged (1).
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_runs import crc32c, saves
from runs import fit
from s3_server import Place, S3Server, place_fixture, s3_fixture, s3_variables_fixture  # noqa: F401

from carril.train import CheckpointConfig

pytestmark = pytest.mark.usefixtures("s3_variables", "head")

COMMAND = str(Path(sys.executable).parent / "carril")


def command(*arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed on both streams."""
    done = subprocess.run(
        [COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


def rows(output: str) -> dict[str, str]:
    """The lines that are about a checkpoint, by its name."""
    found = {}
    for line in output.splitlines():
        if name := re.search(r"\bcheckpoint_\d{6}", line):
            found[name[0]] = line
    return found


@pytest.fixture(params=["local", "s3"])
def kept(request: pytest.FixtureRequest, storage: Path, place: Place) -> tuple[str, Path]:
    """A run with three checkpoints: what a user types for it, and where its files are."""
    where = str(storage) if request.param == "local" else place.uri
    config = {"steps": 3, "size": 1000}
    fit(
        saves(), where, config=config, name="run", checkpoint_config=CheckpointConfig(checkpoint_score_attribute="step")
    )
    return f"{where}/run", (storage if request.param == "local" else place.directory) / "run"


def test_checkpoints_lists_each_with_its_size_its_metrics_and_that_it_is_whole(kept: tuple[str, Path]) -> None:
    run, _ = kept
    code, output = command("checkpoints", run)
    assert code == 0, output
    found = rows(output)
    assert list(found) == ["checkpoint_000000", "checkpoint_000001", "checkpoint_000002"], output
    for step, line in enumerate(found.values()):
        assert "2.0 kB" in line, f"two shards of 1,000 bytes and a file of one byte: {line}"
        assert re.search(rf"\bstep {step}\b", line) and "verified" in line, line


def test_checkpoints_says_which_one_is_damaged_and_how(kept: tuple[str, Path]) -> None:
    run, files = kept
    shard = files / "checkpoint_000001" / "shards" / "0"
    shard.write_text(shard.read_text()[:-1])
    code, output = command("checkpoints", run)
    assert code == 0, output
    damaged = [line for line in output.splitlines() if "damaged" in line]
    assert any("checkpoint_000001" in line for line in damaged) and "shards/0" in output, output
    assert not any("checkpoint_000000" in line or "checkpoint_000002" in line for line in damaged), output
    assert shard.exists(), "looking at it changes nothing"


def test_verify_reads_every_byte_of_a_run_or_of_one_checkpoint(kept: tuple[str, Path]) -> None:
    run, files = kept
    assert command("verify", run)[0] == 0
    assert command("verify", f"{run}/checkpoint_000001")[0] == 0
    shard = files / "checkpoint_000001" / "shards" / "1"
    text = shard.read_text()
    shard.write_text("X" + text[1:])
    for path in (run, f"{run}/checkpoint_000001"):
        code, output = command("verify", path)
        assert code == 1 and "checkpoint_000001" in output and "shards/1" in output, output
    assert command("verify", f"{run}/checkpoint_000002")[0] == 0
    shard.write_text(text)
    assert command("verify", run)[0] == 0


@pytest.mark.parametrize("damage", ["missing", "manifest"])
def test_verify_names_what_is_missing(kept: tuple[str, Path], damage: str) -> None:
    run, files = kept
    name = {"missing": "step", "manifest": ".manifest.json"}[damage]
    path = files / "checkpoint_000002" / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_text(path.read_text().replace('"iteration":3', '"iteration":4'))
    code, output = command("verify", run)
    assert code == 1 and name in output and "checkpoint_000002" in output, output


def test_verify_of_a_directory_without_a_manifest_says_that_it_is_no_checkpoint(kept: tuple[str, Path]) -> None:
    run, files = kept
    (files / "checkpoint_000002" / ".manifest.json").unlink()
    code, output = command("verify", f"{run}/checkpoint_000002")
    assert code != 0 and "checkpoint_000002" in output and output.startswith("error: "), output


@pytest.mark.parametrize("name", ["checkpoints", "verify"])
def test_what_is_not_there_is_one_clear_error(storage: Path, place: Place, name: str) -> None:
    for path in (f"{storage}/nothing", f"{place.uri}/nothing"):
        code, output = command(name, path)
        assert code not in (0, 101) and output.startswith("error: ") and "nothing`" in output, output
        assert "panicked" not in output


def test_a_store_without_credentials_is_one_clear_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", "/nowhere")
    code, output = command("verify", f"{place.uri}/run")
    assert code not in (0, 101) and output.startswith("error: ") and "AWS_ACCESS_KEY_ID" in output, output


def test_a_run_may_be_given_by_its_name_and_one_without_checkpoints_says_so(storage: Path) -> None:
    def function() -> None:
        from carril import train

        train.report({"a": 1})

    fit(saves(), storage, config={"steps": 1}, name="some")
    fit(function, storage, workers=1, name="none")
    code, output = command("checkpoints", "some", "--storage", str(storage))
    assert code == 0 and list(rows(output)) == ["checkpoint_000000"], output
    code, output = command("checkpoints", "none", "--storage", str(storage))
    assert code == 0 and output.startswith("no checkpoints in ") and rows(output) == {}, output


def test_a_manifest_of_a_later_version_is_not_called_damaged_but_newer(storage: Path) -> None:
    fit(saves(), storage, config={"steps": 1}, name="run")
    manifest = storage / "run" / "checkpoint_000000" / ".manifest.json"
    text = manifest.read_text().rstrip("\n").replace('"version":2', '"version":3')
    body = text.rpartition(',"checksum":"')[0]
    manifest.write_text(f'{body},"checksum":"{crc32c((body + "}").encode())}"}}\n')
    assert json.loads(manifest.read_text())["version"] == 3
    code, output = command("verify", str(storage / "run"))
    assert code == 1 and "newer" in output, output
