"""What a search says when something that it goes by is not there: once, and by name."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carril import tune
from carril.tune import RunConfig, TuneConfig, Tuner
from carril.tune.error import TuneError
from carril.tune.schedulers import PopulationBasedTraining
from carril.tune.search import TPESearch

pytestmark = pytest.mark.usefixtures("head")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """The warnings so far."""

    def warnings() -> list[str]:
        captured = capsys.readouterr()
        return [line for line in (captured.out + captured.err).splitlines() if "warning" in line]

    yield warnings


def climbs(config: dict[str, Any]) -> None:
    place = Path(config["place"])
    (place / f"{config['rate']}.here").touch()
    while len(list(place.glob("*.here"))) < 4:
        os.sched_yield()
    for step in range(8):
        tune.report({"score": config["rate"] * step})


def search(storage: Path, trainable: Any, rate: Any = None, **options: Any) -> Any:
    return Tuner(
        trainable,
        param_space={"rate": rate or tune.grid_search([1.0, 2.0, 3.0, 4.0]), "place": str(storage)},
        tune_config=TuneConfig(**{"metric": "score", "mode": "max", **options}),
        run_config=RunConfig(name="search", storage_path=str(storage), verbose=1),
    ).fit()


def test_a_population_without_checkpoints_is_told_of(storage: Path, said: Any) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"rate": [1.0, 4.0]}
    )
    search(storage, climbs, scheduler=scheduler)
    [warning] = said()
    assert "no trial has a checkpoint" in warning and "cannot go on from trial" in warning


@pytest.mark.parametrize("value", ["abc", [1.0]])
def test_a_metric_that_is_no_number_is_told_of_by_its_value_and_ends_the_search(
    storage: Path, said: Any, value: Any
) -> None:
    with pytest.raises(TuneError, match=r"no trial reported a number as the metric `score`: trial . reported") as error:
        search(storage, lambda config: {"score": value}, rate=tune.uniform(0, 1), search_alg=TPESearch())
    assert f'{{"score": {json.dumps(value)}}}' in str(error.value)
    [warning] = said()
    assert json.dumps(value) in warning and "no number" in warning
