"""Population-based training: what does badly goes on from the checkpoint of what does well, with other parameters.

And its replay: one trial that is given the configs of such a run again, each from its step on.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.schedulers import _checks, _mutations
from carril.tune.schedulers.trial_scheduler import NativeScheduler

if TYPE_CHECKING:
    from carril.tune._space import Constants

Explore = Callable[[dict[str, Any]], dict[str, Any]]


class Population(NativeScheduler):
    """What population-based training and PB2 share: when trials are compared, and who is replaced."""

    custom_explore_fn: Explore | None
    # The user's functions that draw values, by their places in the config: asked in the driver.
    _functions: dict[tuple[str, ...], Callable[[], Any]]

    def _take(self, **given: Any) -> None:
        name = self._name
        self.time_attr = _checks.text(name, "time_attr", given["time_attr"], "the name of a value in the results")
        self.perturbation_interval = _checks.number(
            name, "perturbation_interval", given["perturbation_interval"], 0, "a number above 0", open_end=True
        )
        self.burn_in_period = _checks.number(name, "burn_in_period", given["burn_in_period"], 0, "a number, 0 or more")
        self.quantile_fraction = _checks.between(name, "quantile_fraction", given["quantile_fraction"], 0, 0.5)
        for flag in ("log_config", "require_attrs", "synch"):
            setattr(self, flag, _checks.flag(name, flag, given[flag]))
        self.custom_explore_fn = given["custom_explore_fn"]
        if self.custom_explore_fn is not None and not callable(self.custom_explore_fn):
            raise ConfigTypeError(
                f"`{name}(custom_explore_fn=…)` is {kind_of(self.custom_explore_fn)}: "
                "it must be a function that takes a config and returns one"
            )
        self.seed = _checks.seed_number(name, given["seed"])
        self._functions = {}

    def _population_spec(self, metric: str | None, mode: str | None) -> dict[str, Any]:
        return {
            "time_attr": self.time_attr,
            **self._target(metric, mode),
            "perturbation_interval": self.perturbation_interval,
            "burn_in_period": self.burn_in_period,
            "quantile_fraction": self.quantile_fraction,
            "synch": self.synch,
            "seed": self.seed,
            "custom_explore": self.custom_explore_fn is not None,
        }

    def _complete(self, config: dict[str, Any], paths: list[list[str]], explored: bool) -> dict[str, Any]:
        for path in paths:
            _put(config, path, self._functions[tuple(path)]())
        if not explored or self.custom_explore_fn is None:
            return config
        config = self.custom_explore_fn(config)
        if not isinstance(config, dict):
            raise ConfigTypeError(f"`custom_explore_fn` returned {kind_of(config)}: it must be a config")
        return config

    log_config: bool
    require_attrs: bool
    synch: bool


def _put(config: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        config = config.setdefault(key, {})
    config[path[-1]] = value


class PopulationBasedTraining(Population):
    """Every `perturbation_interval`, a trial of the worst quantile goes on from the checkpoint of one of the best.

    Each value that `hyperparam_mutations` names is then resampled with `resample_probability`, or moved: a number by
    one of `perturbation_factors`, and kept in its domain, a choice to its neighbour. `custom_explore_fn` has the last
    word. Trials must save checkpoints. With `synch` all trials are compared at the same time.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Explore | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(metric, mode)
        self._take(
            time_attr=time_attr,
            perturbation_interval=perturbation_interval,
            burn_in_period=burn_in_period,
            quantile_fraction=quantile_fraction,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
            seed=seed,
        )
        self.resample_probability = _checks.between(self._name, "resample_probability", resample_probability, 0, 1)
        self.perturbation_factors = self._factors(perturbation_factors)
        self.hyperparam_mutations = self._checked(hyperparam_mutations)
        self._functions = _mutations.functions_in(self.hyperparam_mutations)

    def _factors(self, factors: object) -> list[float]:
        if not isinstance(factors, (list, tuple)) or not factors:
            raise ConfigTypeError(f"`{self._name}(perturbation_factors={factors!r})`: it must be a list of numbers")
        must = "made of numbers above 0"
        return [_checks.number(self._name, "perturbation_factors", one, 0, must, open_end=True) for one in factors]

    def _checked(self, mutations: object) -> dict[str, Any]:
        if mutations is not None and not isinstance(mutations, Mapping):
            raise ConfigTypeError(
                f"`{self._name}(hyperparam_mutations=…)` is {kind_of(mutations)}: it must be a dict by parameter"
            )
        if not mutations and self.custom_explore_fn is None:
            raise ConfigError(
                f"`{self._name}` has nothing to change",
                hints=["name at least one parameter in `hyperparam_mutations`, or give a `custom_explore_fn`"],
            )
        return dict(mutations or {})

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        return {
            "pbt": {
                **self._population_spec(metric, mode),
                "mutations": _mutations.encode(self.hyperparam_mutations, constants),
                "resample_probability": self.resample_probability,
                "perturbation_factors": self.perturbation_factors,
            }
        }


class PopulationBasedTrainingReplay(NativeScheduler):
    """Trains one trial along the configs that a run of population-based training ended up with.

    `policy_file` is a `pbt_policy_<trial>.txt` of that run: a line for each change, with the names and the steps of the
    trial and of the one it went on from, the config before and the config after.
    """

    def __init__(self, policy_file: "str | os.PathLike[str]") -> None:
        super().__init__()
        try:
            self.policy_file = os.path.expanduser(os.fspath(policy_file))
        except TypeError:
            raise ConfigTypeError(
                f"`{self._name}(policy_file=…)` is {kind_of(policy_file)}: it must be a path"
            ) from None
        try:
            with open(self.policy_file, encoding="utf-8") as file:
                policy = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(f"the policy file `{self.policy_file}` cannot be read: {reason}") from None
        self.start, self.changes = _schedule(self.policy_file, policy)

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        changes = [[step, constants.add(config)] for step, config in self.changes]
        return {"replay": {"start": constants.add(self.start), "changes": changes}}


Change = tuple[int, dict[str, Any]]


def _schedule(path: str, policy: str) -> tuple[dict[str, Any], list[Change]]:
    """The first config, and the later ones with their steps, along the line that led to the last change."""
    rows = [_row(path, number, line) for number, line in enumerate(policy.splitlines(), 1) if line.strip()]
    if not rows:
        raise ConfigError(f"the policy file `{path}` is empty")
    changes: list[Change] = []
    start: dict[str, Any] = {}
    line = rows[-1][0]
    for trial, source, _, step, before, after in reversed(rows):
        # What happened to a trial before it went on from another one is no part of the line.
        if trial != line:
            continue
        line, start = source, before
        changes.append((step, after))
    changes.reverse()
    if any(earlier[0] > later[0] for earlier, later in itertools.pairwise(changes)):
        raise ConfigError(f"the policy file `{path}` has steps out of order")
    return start, changes


def _row(path: str, number: int, line: str) -> tuple[str, str, int, int, dict[str, Any], dict[str, Any]]:
    import json

    try:
        trial, source, trial_step, step, before, after = json.loads(line)
        if isinstance(before, dict) and isinstance(after, dict):
            return str(trial), str(source), int(trial_step), int(step), before, after
    except (ValueError, TypeError):
        pass
    raise ConfigError(
        f"line {number} of the policy file `{path}` is no change of a trial",
        hints=["the file is a `pbt_policy_<trial>.txt` of a run with population-based training"],
    )
