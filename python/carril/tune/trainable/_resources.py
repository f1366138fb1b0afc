"""What a trial reserves: amounts by name, written as a dict, as bundles, or as a function of the config."""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from carril.exceptions import ConfigError, ConfigTypeError, kind_of

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_USUAL = {"cpu": "CPU", "gpu": "GPU"}
DEFAULT = {"CPU": 1.0}


def as_amounts(resources: Mapping[str, Any], where: str) -> dict[str, float]:
    """Amounts above 0 by name, with `cpu` and `gpu` in capital letters. `where` is for the error."""
    if not isinstance(resources, Mapping):
        raise ConfigTypeError(f"`{where}` is {kind_of(resources)}: it must be a dict of amounts by name")
    given = dict(resources)
    given.update(given.pop("custom_resources", None) or {})
    amounts: dict[str, float] = {}
    for name, amount in given.items():
        if not isinstance(name, str) or not isinstance(amount, Real) or isinstance(amount, bool):
            raise ConfigTypeError(f"`{where}` has {name!r}: {amount!r}: an amount is a number, 0 or more")
        if not math.isfinite(amount) or amount < 0:
            raise ConfigError(f"`{where}` has {name!r}: {amount!r}: an amount is a number, 0 or more")
        proper = _USUAL.get(name.lower(), name)
        if proper in amounts:
            raise ConfigError(f"`{where}` has `{proper}` twice")
        amounts[proper] = float(amount)
    return {name: amount for name, amount in amounts.items() if amount}


class PlacementGroupFactory:
    """What a trial reserves, in bundles: the first one for the trial itself, the others for the workers that it starts.

    A trial begins when all of them are free, and a run inside it draws on them.
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *args: Any, **kwargs: Any
    ) -> None:
        if not isinstance(bundles, (list, tuple)) or not bundles:
            raise ConfigError(
                "`PlacementGroupFactory` has no bundles", hints=['give a list of dicts: `[{"CPU": 1}, {"GPU": 1}]`']
            )
        if strategy not in _STRATEGIES:
            raise ConfigError(f"`PlacementGroupFactory(strategy={strategy!r})`: it must be one of {_STRATEGIES}")
        self._bundles = [as_amounts(bundle, "PlacementGroupFactory(bundles=…)") for bundle in bundles]
        if not any(self._bundles):
            raise ConfigError("`PlacementGroupFactory` has only empty bundles: a trial reserves something")
        self._strategy = strategy

    @property
    def bundles(self) -> list[dict[str, float]]:
        return [dict(bundle) for bundle in self._bundles]

    @property
    def strategy(self) -> str:
        return self._strategy

    @property
    def head_cpus(self) -> float:
        """The CPUs of the trial itself."""
        return self._bundles[0].get("CPU", 0.0)

    @property
    def head_bundle_is_empty(self) -> bool:
        return not self._bundles[0]

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacementGroupFactory):
            return NotImplemented
        return self._bundles == other._bundles and self._strategy == other._strategy

    def __hash__(self) -> int:
        return hash((self._strategy, *(frozenset(bundle.items()) for bundle in self._bundles)))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self._bundles!r}, strategy={self._strategy!r})"


def amounts_in(request: Any, where: str) -> dict[str, float]:
    """The amounts of a dict or of bundles."""
    return request.required_resources if isinstance(request, PlacementGroupFactory) else as_amounts(request, where)


# What `with_resources` takes: amounts, bundles, or a function of the config that returns either.
Request = Mapping[str, Any] | PlacementGroupFactory | Callable[[dict[str, Any]], Any]


def checked(request: object) -> Any:
    """A request that is well formed, as far as that can be known without a config."""
    from carril.train._config import ScalingConfig

    if isinstance(request, ScalingConfig):
        return request.total_resources
    if isinstance(request, Mapping):
        return as_amounts(request, "with_resources(…)")
    if isinstance(request, PlacementGroupFactory) or (callable(request) and not isinstance(request, type)):
        return request
    raise ConfigTypeError(
        f"`with_resources(…)` is given {kind_of(request)}: "
        "it must be a dict of amounts, a `PlacementGroupFactory`, or a function of the config that returns one"
    )


def resources_of(trainable: Any, config: dict[str, Any]) -> dict[str, float]:
    """What a trial with this config reserves: what `with_resources` said, what its class says, or one CPU."""
    request = getattr(trainable, "_resources", None)
    if request is None and isinstance(trainable, type):
        request = trainable.default_resource_request(config)  # type: ignore[attr-defined]
    if callable(request):
        request = request(config)
    return dict(DEFAULT) if request is None else amounts_in(request, "the resources of a trial")
