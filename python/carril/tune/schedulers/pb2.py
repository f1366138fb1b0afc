"""PB2: population-based training whose new values come from a bandit that learns from all trials."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.schedulers import _checks
from carril.tune.schedulers.pbt import Explore, Population

if TYPE_CHECKING:
    from carril.tune._space import Constants


class PB2(Population):
    """As population-based training, with new values looked for between `hyperparam_bounds`: `{"lr": [1e-4, 1e-1]}`.

    It needs no other library. A parameter that the config lacks is drawn between its bounds.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Explore | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(metric, mode)
        self._take(
            time_attr=time_attr,
            perturbation_interval=perturbation_interval,
            burn_in_period=0.0,
            quantile_fraction=quantile_fraction,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
            seed=seed,
        )
        if hyperparam_bounds is not None and not isinstance(hyperparam_bounds, Mapping):
            raise ConfigTypeError(
                f"`PB2(hyperparam_bounds=…)` is {kind_of(hyperparam_bounds)}: it must be a dict by parameter"
            )
        if not hyperparam_bounds:
            raise ConfigError(
                "`PB2` has nothing to look for",
                hints=["name at least one parameter in `hyperparam_bounds`, with its least and its most value"],
            )
        self.hyperparam_bounds = dict(hyperparam_bounds)
        self._bounds = _bounds(self.hyperparam_bounds, "")

    def _native_spec(self, constants: "Constants", metric: str | None, mode: str | None) -> dict[str, Any]:
        bounds = [[path, list(pair)] for path, pair in self._bounds.items()]
        return {"pb2": {**self._population_spec(metric, mode), "bounds": bounds}}


def _bounds(given: Mapping[str, Any], above: str) -> dict[str, tuple[float, float]]:
    """Least and most by flattened name."""
    found: dict[str, tuple[float, float]] = {}
    for key, value in given.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping):
            found.update(_bounds(value, f"{path}/"))
            continue
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise ConfigTypeError(f"`hyperparam_bounds` has `{path}` with {value!r}: it must be [least, most]")
        name = f"hyperparam_bounds[{path!r}]"
        low, high = (_checks.number("PB2", name, one, float("-inf"), "two finite numbers") for one in value)
        if not low < high:
            raise ConfigError(f"`hyperparam_bounds` has `{path}` with {value!r}: the least must be below the most")
        found[path] = (low, high)
    return found
