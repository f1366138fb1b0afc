"""What stands around another searcher: everything that it does not change goes through."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from carril.exceptions import ConfigTypeError, kind_of
from carril.tune.search.searcher import Searcher

if TYPE_CHECKING:
    from carril.tune._space import Constants


class Wrapper(Searcher):
    """Around a searcher of the head it is one of the head too, and is known by having `_native_spec`."""

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise ConfigTypeError(f"`{type(self).__name__}` was given {kind_of(searcher)}: it must be a `Searcher`")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher = searcher

    @property
    def metric(self) -> Any:
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        return self.searcher.mode

    @property
    def _space(self) -> Any:
        return getattr(self.searcher, "_space", None)

    @property
    def _native_spec(self) -> "Callable[[Constants], dict[str, Any]]":
        if not hasattr(self.searcher, "_native_spec"):
            raise AttributeError(f"`{type(self.searcher).__name__}` is asked in Python")
        return self._spec

    def _spec(self, constants: "Constants") -> dict[str, Any]:
        raise NotImplementedError

    def _inner_spec(self, constants: "Constants") -> dict[str, Any]:
        inner: Any = self.searcher
        spec: dict[str, Any] = inner._native_spec(constants)
        return spec

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def get_state(self) -> dict[str, Any]:
        own = {name: value for name, value in vars(self).items() if name != "searcher"}
        return {"own": own, "searcher": self.searcher.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        vars(self).update(state["own"])
        self.searcher.set_state(state["searcher"])
