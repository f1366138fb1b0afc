"""Nevergrad: searches without gradients, most of them evolutionary.

A space may be that of `carril.tune` or a parametrization of Nevergrad's own. Numbers are searched in the unit interval, in
which their domains are uniform. Parameters of options that were not chosen are searched along and have no effect.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from carril.exceptions import ConfigError, ConfigTypeError, kind_of
from carril.tune.search._library import Asked, LibrarySearcher, imported, library
from carril.tune.search._tree import place, value_at

__all__ = ["NevergradSearch"]


class NevergradSearch(LibrarySearcher):
    """`optimizer` is one of Nevergrad's classes, its name, or an object that is made already; NGOpt where none is given.

    For an object, `space` may be the list of names of its arguments. `optimizer_kwargs` go to the class.
    """

    conditional: ClassVar[bool] = True

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        nevergrad = library("NevergradSearch", "nevergrad", "nevergrad")
        self._optimizer: Any = None
        self._names: list[str] | None = None
        if isinstance(optimizer, nevergrad.optimizers.base.Optimizer):
            if optimizer_kwargs:
                raise ConfigError(
                    "`optimizer_kwargs` are for a class, and `optimizer` is an object that is made already"
                )
            self._names = None if space is None else list(space)
            self._optimizer, space = optimizer, optimizer.parametrization
        elif isinstance(space, (list, tuple)):
            raise ConfigTypeError("`space` is a list of names: then `optimizer` must be an object that is made already")
        super().__init__(space, metric, mode, points_to_evaluate)
        self._kind = _optimizer_class(nevergrad, optimizer)
        self._kwargs = dict(optimizer_kwargs or {})
        if space is not None and self._tree is None and not isinstance(space, nevergrad.p.Parameter):
            self._parameters()

    def _begin(self) -> None:
        nevergrad = imported("nevergrad")

        if self._optimizer is not None:
            return
        space = self._space
        if self._tree is not None:
            found = {p.name: nevergrad.p.Choice(p.options) for p in self._tree.parameters if p.options}
            numbers = [p.name for p in self._tree.parameters if not p.options]
            found |= {name: nevergrad.p.Scalar(init=0.5, lower=0.0, upper=1.0) for name in numbers}
            space = nevergrad.p.Dict(**found)
        # Enough for those that plan ahead, where no budget is given.
        self._optimizer = self._kind(parametrization=space, **{"budget": 100, **self._kwargs})

    def _ask(self) -> Asked:
        candidate = self._optimizer.ask()
        if self._tree is None:
            return Asked(candidate, self._arguments(candidate))
        raw = candidate.value
        return Asked(
            candidate,
            {p.name: raw[p.name] if p.options else value_at(p.domain, raw[p.name]) for p in self._tree.parameters},
        )

    def _arguments(self, candidate: Any) -> dict[str, Any]:
        if self._names is not None:
            return dict(zip(self._names, candidate.args, strict=True))
        if isinstance(candidate.value, Mapping):
            return dict(candidate.value)
        return dict(candidate.kwargs)

    def _put(self, values: dict[str, Any]) -> Any:
        if self._tree is None:
            if self._names is not None:
                arguments = tuple(values[name] for name in self._names)
                return self._optimizer.parametrization.spawn_child(new_value=(arguments, {}))
            mapping = isinstance(self._optimizer.parametrization.value, Mapping)
            return self._optimizer.parametrization.spawn_child(new_value=values if mapping else ((), values))
        raw = self._optimizer.parametrization.value
        for p in self._tree.parameters:
            if p.name in values:
                raw[p.name] = values[p.name] if p.options else place(p.domain, values[p.name])
        return self._optimizer.parametrization.spawn_child(new_value=raw)

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        nevergrad = imported("nevergrad")

        cost = self._loss_or_worst(loss)
        if cost is not None:
            # Some optimizers learn only from what they suggested themselves.
            with contextlib.suppress(nevergrad.errors.TellNotAskedNotSupportedError):
                self._optimizer.tell(asked.handle, cost)


def _optimizer_class(nevergrad: Any, optimizer: Any) -> Any:
    if optimizer is None:
        return nevergrad.optimizers.NGOpt
    if isinstance(optimizer, str):
        if optimizer not in nevergrad.optimizers.registry:
            raise ConfigError(f"Nevergrad has no optimizer `{optimizer}`", hints=["`nevergrad.optimizers.registry`"])
        return nevergrad.optimizers.registry[optimizer]
    if not callable(optimizer) and not isinstance(optimizer, nevergrad.optimizers.base.Optimizer):
        raise ConfigTypeError(
            f"`optimizer` of `NevergradSearch` is {kind_of(optimizer)}: it must be one of Nevergrad's"
        )
    return optimizer
