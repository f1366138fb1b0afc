"""Trouble between us and S3: answers of 503, resets, cut transfers, slowness, darkness, refusals. No run fails for
what passes, nothing that was kept is lost, and what stays wrong is reported once and clearly.

Every test asserts that its faults fired: the proxy counts them.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_runs import InBackground, committed_steps, saves, step_of
from conftest import wait_until
from faulty_proxy import FAULTS, RESET_REQUEST, RESET_RESPONSE, SLOW_DOWN, TRUNCATED, FaultyProxy
from runs import NO_RESTART, fit, trainer
from s3_server import (  # noqa: F401
    Place,
    S3Server,
    place_fixture,
    proxied_fixture,
    s3_fixture,
    set_variables,
)
from snapshots import check

import carril
from carril.exceptions import CarrilError
from carril.train import Checkpoint, ControllerError, TrainingFailedError, WorkerGroupError

Proxied = Callable[..., FaultyProxy]

LONG = bool(os.environ.get("CARRIL_LONG"))
# What hurt others: a tenth of all answers is a 503, one in a hundred connections is cut.
TROUBLE = {SLOW_DOWN: 0.1, RESET_REQUEST: 0.01, RESET_RESPONSE: 0.01, TRUNCATED: 0.01}


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
@pytest.mark.parametrize("seed", range(10 if LONG else 1))
def test_no_run_fails_and_nothing_is_lost_under_503s_and_resets(
    proxied: Proxied, place: Place, seed: int, mode: str
) -> None:
    steps = 200 if LONG else 40
    proxy = proxied(seed=seed, rates=TROUBLE)
    result = fit(saves(), place.uri, config={"steps": steps, "mode": mode}, name="trouble")
    assert all(proxy.injected[fault] for fault in TROUBLE), proxy.injected
    assert proxy.injected[SLOW_DOWN] >= 0.09 * len(proxy.requests)
    assert committed_steps(place.directory / "trouble") == list(range(steps))
    assert result.metrics is not None and result.metrics["step"] == steps - 1
    assert result.checkpoint is not None and step_of(result.checkpoint) == steps - 1
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == list(range(steps))


def test_each_request_of_a_run_may_fail_once(proxied: Proxied, place: Place) -> None:
    proxy, steps = proxied(), [0, 1, 2]
    fit(saves(), place.uri, config={"steps": len(steps)}, name="counted")
    numbers = range(1, len(proxy.requests) + 1)
    fired = 0
    for number in numbers:
        # Each request with each fault, or in short runs with one of them in turn.
        for fault in FAULTS if LONG else [FAULTS[number % len(FAULTS)]]:
            made, injected = len(proxy.requests), proxy.injected[fault]
            proxy.strike_one(number, fault)
            name = f"struck-{number}-{FAULTS.index(fault)}"
            result = fit(saves(), place.uri, config={"steps": len(steps)}, name=name)
            # How many requests there are, and in which order, is not quite the same in every run.
            assert proxy.injected[fault] - injected == (number <= len(proxy.requests) - made), (number, fault)
            fired += proxy.injected[fault] - injected
            assert committed_steps(place.directory / name) == steps, (number, fault)
            assert result.checkpoint is not None and step_of(result.checkpoint) == steps[-1], (number, fault)
    assert fired > 0.9 * len(numbers) * (len(FAULTS) if LONG else 1)


def saves_a_large_file() -> Callable[..., Any]:
    def function(config: dict[str, Any]) -> None:
        import os

        from carril import train

        directory = os.path.join(config["place"], "big")
        os.mkdir(directory)
        with open(os.path.join(directory, "model"), "wb") as file:
            file.write(b"".join(number.to_bytes(8, "big") for number in range(6 << 20)))
        train.report({}, checkpoint=train.Checkpoint(directory))

    return function


def is_stored(place: Place, tmp_path: Path, name: str) -> bool:
    stored = (place.directory / name / "checkpoint_000000" / "model").read_bytes()
    return stored == (tmp_path / "big" / "model").read_bytes()


def test_what_is_sent_twice_because_the_answer_was_cut_is_there_once_and_right(
    proxied: Proxied, place: Place, tmp_path: Path
) -> None:
    proxy = proxied(rates={RESET_RESPONSE: 0.2, RESET_REQUEST: 0.1})
    fit(saves_a_large_file(), place.uri, workers=1, config={"place": str(tmp_path)}, name="twice")
    assert proxy.injected[RESET_RESPONSE] and proxy.injected[RESET_REQUEST], proxy.injected
    assert is_stored(place, tmp_path, "twice")


@pytest.mark.parametrize("fault", [RESET_RESPONSE, RESET_REQUEST, SLOW_DOWN])
def test_a_large_file_is_finished_once_where_the_answer_to_that_was_lost(
    proxied: Proxied, place: Place, tmp_path: Path, fault: str
) -> None:
    proxy = proxied()
    proxy.strike_first(r"POST .*uploadId=", fault)
    result = fit(saves_a_large_file(), place.uri, workers=1, config={"place": str(tmp_path)}, name="finished")
    assert proxy.injected[fault] == 1 and len(proxy.seen(r"POST .*uploadId=")) == 2, proxy.injected
    assert result.restarts == [] and is_stored(place, tmp_path, "finished")


def test_a_download_that_is_cut_is_completed_and_never_handed_out_in_part(
    proxied: Proxied, place: Place, tmp_path: Path
) -> None:
    proxy = proxied()
    source = tmp_path / "source"
    source.mkdir()
    names = [f"file-{number}" for number in range(30)]
    for name in names:
        (source / name).write_text(name * 20_000)
    (source / "large").write_bytes(os.urandom(40 << 20))
    checkpoint = Checkpoint.from_uri(Checkpoint(source).to_uri(f"{place.uri}/cut"))
    # From here on: the way up is not what is tested.
    proxy.strike({TRUNCATED: 0.25, RESET_RESPONSE: 0.1, SLOW_DOWN: 0.1})
    before = proxy.injected.copy()
    with checkpoint.as_directory() as directory:
        for name in [*names, "large"]:
            assert Path(directory, name).read_bytes() == (source / name).read_bytes(), name
    fired = proxy.injected - before
    assert fired[TRUNCATED] and fired[RESET_RESPONSE], fired


def test_darkness_for_a_while_only_takes_time(proxied: Proxied, place: Place) -> None:
    proxy = proxied()
    running = InBackground(trainer(saves(), place.uri, config={"steps": 12}, name="dark").fit)
    wait_until(
        lambda: proxy.seen("PUT .*checkpoint_000003/"), "the fourth checkpoint is on its way", proxy.requests.copy
    )
    proxy.black_out(3.0)
    running.finish()
    assert proxy.injected["blackout"], proxy.injected
    assert committed_steps(place.directory / "dark") == list(range(12))


def test_a_slow_link_only_takes_time(proxied: Proxied, place: Place) -> None:
    proxy = proxied(bytes_per_second=200_000)
    result = fit(saves(), place.uri, config={"steps": 3, "size": 100_000}, name="slow")
    assert committed_steps(place.directory / "slow") == [0, 1, 2]
    assert result.metrics is not None and result.metrics["checkpoint_upload_s"] >= 0.5
    assert len(proxy.requests) > 9


def test_resuming_works_under_the_same_trouble(proxied: Proxied, place: Place) -> None:
    proxy = proxied(rates={SLOW_DOWN: 0.2, TRUNCATED: 0.1, RESET_RESPONSE: 0.1})
    with pytest.raises(WorkerGroupError, match="on purpose"):
        fit(saves(), place.uri, config={"steps": 9, "fail_at": 4}, name="again")
    before = proxy.injected.copy()
    assert fit(saves(), place.uri, config={"steps": 9}, name="again").return_value == 5
    assert sum((proxy.injected - before).values()) > 2, proxy.injected
    assert committed_steps(place.directory / "again") == list(range(9))


@pytest.mark.parametrize("mode", ["SYNC", "ASYNC"])
@pytest.mark.parametrize("refused", ["checkpoint_000001/shards/1", "checkpoint_000001/.manifest.json"])
def test_a_checkpoint_that_cannot_be_stored_is_told_and_the_run_goes_on(
    proxied: Proxied, place: Place, capsys: pytest.CaptureFixture[str], refused: str, mode: str
) -> None:
    proxy = proxied()
    proxy.refuse(f"PUT .*{refused}")
    result = fit(saves(), place.uri, config={"steps": 4, "mode": mode}, name="denied")
    assert proxy.injected["refused with 403 AccessDenied"], proxy.injected
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(told) == 1 and "checkpoint_000001" in told[0] and "403" in told[0], told
    assert committed_steps(place.directory / "denied") == [0, 2, 3] == [m["step"] for _, m in result.best_checkpoints]
    assert [row["step"] for row in result.rank_metrics(0)] == [0, 1, 2, 3], "its report counts all the same"
    left = [key for key in place.objects() if "checkpoint_000001/" in key]
    assert left == [], "what was stored of it is gone again"


def test_a_run_ends_when_what_it_gave_up_is_deleted(proxied: Proxied, place: Place) -> None:
    proxy = proxied()
    proxy.refuse("PUT .*checkpoint_000001/shards/1")
    deleting = proxy.hold("(DELETE|POST) .*delete|DELETE .*checkpoint_000001")
    running = InBackground(trainer(saves(), place.uri, config={"steps": 4}, name="given-up").fit)
    stored = "PUT .*checkpoint_000003/.manifest.json"
    wait_until(lambda: deleting.waiting and proxy.seen(stored), "only the deletion is left", proxy.requests.copy)
    assert not running.ends_within(1.0)
    deleting.release()
    running.finish()
    assert not [key for key in place.objects() if "checkpoint_000001/" in key]


def test_a_run_whose_last_checkpoint_could_not_be_stored_has_failed(proxied: Proxied, place: Place) -> None:
    proxy = proxied()
    proxy.refuse("PUT .*checkpoint_000002/step")
    with pytest.raises(ControllerError) as caught:
        fit(saves(), place.uri, config={"steps": 3}, name="denied", failure_config=NO_RESTART)
    assert proxy.injected["refused with 403 AccessDenied"], proxy.injected
    assert "checkpoint_000002" in str(caught.value) and "403" in str(caught.value)
    assert committed_steps(place.directory / "denied") == [0, 1]


def test_a_retention_that_is_refused_is_told_and_ends_nothing(
    proxied: Proxied, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy = proxied()
    # Deleting is one request for a single object, and another for many.
    proxy.refuse(r"(DELETE .*checkpoint_000000)|(POST [^?]*\?delete)")
    fit(saves(), place.uri, config={"steps": 3}, name="stuck", checkpoint_config={"num_to_keep": 1})
    assert proxy.injected["refused with 403 AccessDenied"], proxy.injected
    told = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert told and all("checkpoint_00000" in line for line in told), told
    assert committed_steps(place.directory / "stuck")[-1] == 2


WRONG: dict[str, dict[str, str]] = {
    "no credentials at all": {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
    "an access key that is not known": {"AWS_ACCESS_KEY_ID": "nobody"},
    "a secret that is wrong": {"AWS_SECRET_ACCESS_KEY": "guessed"},
    "a secret that is missing": {"AWS_SECRET_ACCESS_KEY": ""},
}


@pytest.fixture
def told(s3: S3Server, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """What `fit()` says under these variables, with a head of its own; nothing may have begun."""

    def function(config: dict[str, Any]) -> None:
        open(config["ran"], "w").close()

    def fails(variables: dict[str, str], uri: str = place.uri) -> str:
        monkeypatch.setenv("HOME", str(tmp_path))
        set_variables(monkeypatch, {name: value for name, value in s3.variables(**variables).items() if value})
        try:
            with pytest.raises(CarrilError) as caught:
                fit(function, uri, workers=1, config={"ran": str(tmp_path / "ran")}, name="never")
        finally:
            carril.shutdown()
        assert not isinstance(caught.value, TrainingFailedError), "it is refused before there is a run"
        assert not (tmp_path / "ran").exists() and place.objects() == []
        assert "test-secret-key" not in str(caught.value) and "guessed" not in str(caught.value)
        return f"{type(caught.value).__name__}: {caught.value}".replace(uri, "URI")

    return fails


def test_wrong_credentials_and_buckets_are_one_clear_error_each_before_anything_starts(
    told: Callable[..., str], s3: S3Server
) -> None:
    texts = [f"# {title}\n{told(variables)}" for title, variables in WRONG.items()]
    texts.append("# a bucket that does not exist\n" + told({}, "s3://no-such-bucket/runs"))
    assert not (s3.root / "no-such-bucket").exists()
    assert "AWS_SECRET_ACCESS_KEY" in texts[3], "a variable that is missing is named"
    for text in texts:
        first, *hints = text.splitlines()[1:]
        assert "`" in first and not first.endswith("."), text
        assert all(line.startswith("hint: ") for line in hints), text
    check("s3_refused", "\n\n".join(texts).replace(str(s3.port), "PORT"))


def test_credentials_may_come_from_the_file_that_the_aws_command_writes(
    s3: S3Server, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = s3.variables()
    key, secret = variables.pop("AWS_ACCESS_KEY_ID"), variables.pop("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    set_variables(monkeypatch, variables)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = nobody\naws_secret_access_key = none\n\n"
        f"[lab]\naws_access_key_id = {key}\naws_secret_access_key={secret}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lab")
    try:
        result = fit(saves(), place.uri, config={"steps": 1}, name="profile")
    finally:
        carril.shutdown()
    assert result.checkpoint is not None and committed_steps(place.directory / "profile") == [0]
