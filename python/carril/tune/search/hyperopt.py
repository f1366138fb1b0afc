"""HyperOpt: its Parzen estimators, with conditional spaces.

A space may be that of `carril.tune` or HyperOpt's own expressions.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from carril.exceptions import ConfigError
from carril.tune.search._library import Asked, LibrarySearcher, imported, library
from carril.tune.search._tree import Parameter
from carril.tune.search.sample import Categorical, Float, Integer

__all__ = ["HyperOptSearch"]


class HyperOptSearch(LibrarySearcher):
    """HyperOpt's TPE. `n_initial_points` random configs come first; `gamma` is the share that counts as good."""

    conditional: ClassVar[bool] = True

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        library("HyperOptSearch", "hyperopt", "hyperopt")
        super().__init__(space, metric, mode, points_to_evaluate, random_state_seed)
        if not 0 < gamma < 1:
            raise ConfigError(f"`gamma` of `HyperOptSearch` is {gamma}: it must be between 0 and 1")
        self._n_initial_points = n_initial_points
        self._gamma = gamma
        self._domain: Any = None
        self._history: Any = None

    def _begin(self) -> None:
        hyperopt = imported("hyperopt")

        space = self._space if self._tree is None else _expressions(self._tree.parameters, ())
        self._domain = hyperopt.base.Domain(_never_called, space)
        self._history = hyperopt.Trials()

    def _ask(self) -> Asked:
        hyperopt = imported("hyperopt")

        [number] = self._history.new_trial_ids(1)
        self._history.refresh()
        suggest = partial(hyperopt.tpe.suggest, n_startup_jobs=self._n_initial_points, gamma=self._gamma, verbose=False)
        [document] = suggest([number], self._domain, self._history, self._random.randrange(2**31 - 1))
        self._history.insert_trial_docs([document])
        self._history.refresh()
        raw = {label: found[0] for label, found in document["misc"]["vals"].items() if len(found)}
        if self._tree is not None:
            return Asked(number, {p.name: _value(p, raw[p.name]) for p in self._tree.parameters if p.name in raw})
        memo = self._domain.memo_from_config(raw)
        return Asked(number, hyperopt.pyll.rec_eval(self._domain.expr, memo=memo, print_node_on_error=False))

    def _put(self, values: dict[str, Any]) -> int:
        [number] = self._history.new_trial_ids(1)
        labels = values if self._tree is not None else _numbered(self._domain.expr, values)
        present = {label: [labels[label]] if label in labels else [] for label in self._domain.params}
        misc = {
            "tid": number,
            "cmd": ("domain_attachment", "FMinIter_Domain"),
            "workdir": None,
            "idxs": {label: [number] * len(found) for label, found in present.items()},
            "vals": present,
        }
        self._history.insert_trial_docs(self._history.new_trial_docs([number], [None], [{"status": "new"}], [misc]))
        self._history.refresh()
        return int(number)

    def _tell(self, asked: Asked, loss: float | None, result: Mapping[str, Any]) -> None:
        hyperopt = imported("hyperopt")

        document = next(d for d in reversed(self._history._dynamic_trials) if d["tid"] == asked.handle)
        document["state"] = hyperopt.JOB_STATE_ERROR if loss is None else hyperopt.JOB_STATE_DONE
        document["result"] = {"status": "fail"} if loss is None else {"status": "ok", "loss": loss}
        self._history.refresh()


def _never_called(config: Any) -> None:
    raise AssertionError("trials are run by Carril, not by HyperOpt")


def _expressions(parameters: Sequence[Parameter], conditions: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    """The parameters that exist under these conditions; those of options are inside of their choice."""
    hp = imported("hyperopt").hp

    here = [parameter for parameter in parameters if parameter.conditions == conditions]
    found: dict[str, Any] = {}
    for parameter in here:
        if isinstance(parameter.domain, Categorical):
            inner = [(*conditions, (parameter.name, index)) for index in range(parameter.options)]
            found[parameter.name] = hp.choice(parameter.name, [_expressions(parameters, option) for option in inner])
        else:
            found[parameter.name] = _number(parameter.name, parameter.domain)
    return found


def _number(label: str, domain: Any) -> Any:
    from math import log

    hp = imported("hyperopt").hp

    if isinstance(domain, Float) and domain.distribution == "normal":
        return hp.normal(label, domain.mean, domain.sd) if domain.q is None else hp.qnormal(label, *domain.arguments)
    if isinstance(domain, Float) and domain.log:
        low, high = log(domain.lower), log(domain.upper)
        return hp.loguniform(label, low, high) if domain.q is None else hp.qloguniform(label, low, high, domain.q)
    if isinstance(domain, Float) and domain.q is None:
        return hp.uniform(label, domain.lower, domain.upper)
    # Half a step more on both sides, so that the outermost values are as likely as the others.
    (first, last), step = domain.multiples(), domain.q or 1
    low, high = (first - 0.4999) * step, (last + 0.4999) * step
    return hp.qloguniform(label, log(low), log(high), step) if domain.log else hp.quniform(label, low, high, step)


def _value(parameter: Parameter, raw: Any) -> Any:
    domain = parameter.domain
    if isinstance(domain, Categorical):
        return int(raw)
    if isinstance(domain, Integer):
        (first, last), step = domain.multiples(), domain.q or 1
        return min(max(round(float(raw) / step), first), last) * step
    if domain.distribution == "normal":
        return domain.rounded(float(raw))
    return domain.rounded(min(max(float(raw), domain.lower), domain.upper))


def _numbered(expression: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by label, an option of HyperOpt's own choices by its number."""
    hyperopt = imported("hyperopt")

    numbered = dict(values)
    for node in hyperopt.pyll.dfs(expression):
        if node.name != "switch" or node.pos_args[0].name != "hyperopt_param":
            continue
        label = node.pos_args[0].pos_args[0].obj
        for index, option in enumerate(node.pos_args[1:]):
            if label in values and option.name == "literal" and option.obj == values[label]:
                numbered[label] = index
    return numbered
