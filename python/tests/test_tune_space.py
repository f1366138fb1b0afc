"""Search spaces: what each function draws, what cannot be, how a space is sent, and what a function of the user sees.

The numbers of the invariants are those of `carril/tune/_space.py` and `carril/tune/search/sample.py`.
"""

import json
import math
import pickle
import random
import re
import subprocess
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from carril import tune
from carril.exceptions import ConfigError, ConfigTypeError
from carril.tune._space import Constants, encode_node, encode_space, resolve, unresolved
from carril.tune.search.sample import Categorical, Float, Function, Integer

DRAWS = 4_000

DOMAINS: list[tuple[Any, str, Callable[[Any], bool]]] = [
    (tune.uniform(-1, 2), "uniform(-1.0, 2.0)", lambda value: -1 <= value < 2),
    (tune.quniform(0, 0.9, 0.3), "quniform(0.0, 0.9, 0.3)", lambda value: value in (0, 0.3, 0.6, 0.8999999999999999)),
    (tune.loguniform(1e-4, 1e-1), "loguniform(0.0001, 0.1)", lambda value: 1e-4 <= value < 1e-1),
    (tune.qloguniform(5, 100, 5), "qloguniform(5.0, 100.0, 5.0)", lambda value: value % 5 == 0 and 5 <= value <= 100),
    (tune.randn(3, 2), "randn(3.0, 2.0)", math.isfinite),
    (tune.qrandn(0, 10, 5), "qrandn(0.0, 10.0, 5.0)", lambda value: value % 5 == 0),
    (tune.randint(2, 5), "randint(2, 5)", lambda value: value in (2, 3, 4)),
    (tune.qrandint(0, 10, 5), "qrandint(0, 10, 5)", lambda value: value in (0, 5, 10)),
    (tune.lograndint(1, 10), "lograndint(1, 10)", lambda value: value in range(1, 10)),
    (tune.qlograndint(2, 10, 4), "qlograndint(2, 10, 4)", lambda value: value in (4, 8)),
    (tune.choice(["a", None]), "choice(['a', None])", lambda value: value in ("a", None)),
]


@pytest.mark.parametrize(("domain", "text", "belongs"), DOMAINS, ids=[text for _, text, _ in DOMAINS])
def test_every_sample_belongs_to_its_domain(domain: Any, text: str, belongs: Callable[[Any], bool]) -> None:
    """SPACE-1"""
    samples = domain.sample(size=DRAWS, random_state=7)
    assert len(samples) == DRAWS
    assert all(belongs(sample) and domain.is_valid(sample) for sample in samples), samples[:10]
    assert len(set(samples)) > 1
    assert samples == pickle.loads(pickle.dumps(domain)).sample(size=DRAWS, random_state=7)
    assert repr(domain) == text
    kinds = {type(sample) for sample in samples if sample is not None}
    assert kinds == {int if "int" in text else str if "choice" in text else float}


def test_steps_are_equally_likely_also_the_outermost() -> None:
    for domain in (tune.qrandint(0, 20, 10), tune.quniform(0, 20, 10)):
        counts = Counter(domain.sample(size=9_000, random_state=1))
        assert sorted(counts) == [0, 10, 20]
        assert min(counts.values()) > 2_700, counts


def test_a_logarithmic_scale_has_as_many_samples_in_each_decade() -> None:
    samples = tune.loguniform(1e-3, 1).sample(size=9_000, random_state=1)
    counts = Counter(math.floor(math.log10(sample)) for sample in samples)
    assert sorted(counts) == [-3, -2, -1]
    assert min(counts.values()) > 2_700, counts


def test_a_step_of_one_is_no_step_for_whole_numbers_and_one_for_fractions() -> None:
    assert set(tune.qrandint(0, 3, 1).sample(size=500)) == {0, 1, 2}
    assert set(tune.qrandint(0, 3).sample(size=500)) == {0, 1, 2}
    assert set(tune.quniform(0, 3, 1).sample(size=500)) == {0.0, 1.0, 2.0, 3.0}


def test_one_sample_is_a_value_and_follows_the_seed_of_random() -> None:
    random.seed(5)
    first = tune.uniform(0, 1).sample()
    random.seed(5)
    assert tune.uniform(0, 1).sample() == first
    assert isinstance(first, float)
    assert tune.sample_from(lambda config: config["x"] + 1).sample({"x": 1}) == 2
    assert tune.sample_from(lambda: 1).sample() == 1


def test_a_generator_of_numpy_is_a_random_state() -> None:
    import numpy

    for make in (numpy.random.RandomState, numpy.random.default_rng):
        assert tune.randn().sample(random_state=make(3)) == tune.randn().sample(random_state=make(3))
        assert tune.randn().sample(random_state=make(3)) != tune.randn().sample(random_state=make(4))


def test_the_classes_can_be_used_as_scripts_do() -> None:
    assert repr(Float(0, 1).uniform()) == repr(tune.uniform(0, 1))
    assert repr(tune.uniform(0, 1).quantized(0.5)) == repr(tune.quniform(0, 1, 0.5))
    assert repr(Float(2, 10).loguniform().quantized(2)) == repr(tune.qloguniform(2, 10, 2))
    assert repr(Float(None, None).normal(1, 2)) == repr(tune.randn(1, 2))
    assert repr(Integer(1, 9).loguniform()) == repr(tune.lograndint(1, 9))
    assert repr(tune.randint(0, 9).quantized(3)) == repr(tune.qrandint(0, 9, 3))
    assert Categorical([1, 2]).uniform().categories == [1, 2]
    assert tune.choice([1, 2]).grid() == tune.grid_search([1, 2]) == {"grid_search": [1, 2]}
    assert (tune.uniform(0, 1).lower, tune.uniform(0, 1).upper) == (0, 1)
    assert Function(abs).is_function() and not tune.choice([1]).is_function()
    assert tune.loguniform(1, 100, 10).distribution == "loguniform"


def test_a_choice_of_spaces_is_drawn_inside() -> None:
    domain = tune.choice([{"kind": "linear"}, {"kind": "deep", "widths": [tune.randint(1, 3), 8]}])
    samples = domain.sample(size=200, random_state=1)
    assert {json.dumps(sample) for sample in samples} == {
        '{"kind": "linear"}',
        '{"kind": "deep", "widths": [1, 8]}',
        '{"kind": "deep", "widths": [2, 8]}',
    }
    assert all(map(domain.is_valid, samples))
    assert not domain.is_valid({"kind": "deep", "widths": [3, 8]})
    assert not domain.is_valid({"kind": "linear", "more": 1})


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy

    assert repr(tune.uniform(numpy.float32(0.5), numpy.int64(2))) == "uniform(0.5, 2.0)"
    assert repr(tune.randint(numpy.int64(1), 4.0)) == "randint(1, 4)"  # type: ignore[arg-type]
    assert tune.choice(numpy.arange(3)).categories == [0, 1, 2]
    assert type(tune.grid_search(numpy.linspace(0, 1, 3))["grid_search"][0]) is float


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: tune.uniform(1, 1), ConfigError, "the lower bound 1.0 of `uniform` is not below the upper bound 1.0"),
        (lambda: tune.randint(3, 2), ConfigError, "the lower bound 3 of `randint` is not below the upper bound 2"),
        (lambda: tune.lograndint(5, 2), ConfigError, "the lower bound 5 of `lograndint` is not below"),
        (lambda: tune.loguniform(0, 1), ConfigError, "`lower` of `loguniform` is 0.0, and has to be above 0"),
        (lambda: tune.lograndint(0, 8), ConfigError, "`lower` of `lograndint` is 0, and has to be above 0"),
        (lambda: tune.quniform(0, 1, 0), ConfigError, "`q` of `quniform` is 0.0, and has to be above 0"),
        (lambda: tune.qrandint(0, 9, -1), ConfigError, "`q` of `qrandint` is -1, and has to be above 0"),
        (lambda: tune.qrandint(3, 4, 5), ConfigError, "no multiple of `q=5` of `qrandint` lies between 3 and 4"),
        (lambda: tune.randn(0, 0), ConfigError, "`sd` of `randn` is 0.0, and has to be above 0"),
        (lambda: tune.qrandn(0, 1, math.nan), ConfigError, "`q` of `qrandn` is nan, which is not a finite number"),
        (lambda: tune.uniform(0, math.inf), ConfigError, "`upper` of `uniform` is inf, which is not a finite number"),
        (lambda: tune.uniform(-1e308, 1e308), ConfigError, "`upper - lower` of `uniform` is inf"),
        (lambda: tune.uniform("0", 1), ConfigTypeError, "`lower` of `uniform` is '0': it must be a number"),  # type: ignore[arg-type]
        (lambda: tune.uniform(True, 2), ConfigTypeError, "`lower` of `uniform` is True: it must be a number"),
        (lambda: tune.randint(0, 1.5), ConfigTypeError, "`upper` of `randint` is 1.5: it must be a whole number"),  # type: ignore[arg-type]
        (lambda: tune.randint(0, 2**63), ConfigError, "which has more than 64 bits"),
        (lambda: tune.choice([]), ConfigError, "`choice` has nothing to choose from"),
        (lambda: tune.grid_search([]), ConfigError, "`grid_search` has nothing to choose from"),
        (lambda: tune.choice("abc"), ConfigTypeError, "`choice` was given a str: it must be a list of values"),
        (lambda: tune.grid_search(3), ConfigTypeError, "`grid_search` was given an int"),  # type: ignore[arg-type]
        (
            lambda: tune.quniform(0.1, 1, 0.25),
            ConfigError,
            "the lower bound 0.1 of `quniform` is no multiple of `q=0.25`",
        ),
        (lambda: tune.quniform(0, 1, 3), ConfigError, "the upper bound 1.0 of `quniform` is no multiple of `q=3.0`"),
        (lambda: tune.sample_from(3), ConfigTypeError, "`sample_from` was given an int: it must be a function"),  # type: ignore[arg-type]
        (
            lambda: tune.choice([1, {"a": {"b": tune.grid_search([1])}}]),
            ConfigError,
            "the option `1/a/b` of `choice` is a `grid_search`, which cannot depend on chance\nhint: put",
        ),
        (lambda: Float(0, 1).normal(), ConfigError, "a normal distribution has no bounds"),
    ],
)
def test_a_domain_that_cannot_be_is_refused_where_it_is_written(
    make: Callable[[], Any], kind: type[ConfigError], text: str
) -> None:
    """SPACE-2"""
    with pytest.raises(ConfigError, match=re.escape(text)) as raised:
        make()
    assert type(raised.value) is kind
    assert raised.traceback[1].path.samefile(__file__)


def test_a_space_is_sent_as_json_and_its_objects_by_number() -> None:
    """ENCODE-1"""
    held = object()
    ordered = OrderedDict(a=1)

    def twice(spec: Any) -> Any:
        return spec.config.lr * 2

    encoded = encode_space(
        {
            "lr": tune.loguniform(1e-4, 1e-1),
            "model": {"width": tune.qrandint(0, 8, 4), "bias": True, "scale": 1},
            "layers": [1, tune.uniform(0, 1)],
            "shape": (1, 2),
            "optimizer": tune.choice(["adam", {"momentum": tune.randn()}]),
            "batch": tune.grid_search([16, 1]),
            "object": held,
            "names": {1: "one"},
            "ordered": ordered,
            "empty": {},
            "function": len,
            "twice": tune.sample_from(twice),
            "floats": [0.0, -0.0],
        }
    )
    assert json.loads(json.dumps(encoded.node)) == encoded.node
    nodes = dict(encoded.node["map"])
    values = encoded.constants

    def constant(node: dict[str, int]) -> Any:
        assert list(node) == ["constant"]
        return values[node["constant"]]

    assert list(nodes)[:3] == ["lr", "model", "layers"]
    assert nodes["lr"] == {"loguniform": [1e-4, 1e-1]}
    model = dict(nodes["model"]["map"])
    assert model["width"] == {"qrandint": [0, 8, 4]}
    assert constant(model["bias"]) is True and constant(model["scale"]) == 1
    assert constant(nodes["layers"]["list"][0]) == 1 and nodes["layers"]["list"][1] == {"uniform": [0.0, 1.0]}
    assert constant(nodes["shape"]) == (1, 2)
    adam, momentum = nodes["optimizer"]["choice"]
    assert constant(adam) == "adam" and momentum == {"map": [["momentum", {"randn": [0.0, 1.0]}]]}
    assert [constant(node) for node in nodes["batch"]["grid"]] == [16, 1]
    assert constant(nodes["object"]) is held and constant(nodes["ordered"]) is ordered
    assert constant(nodes["names"]) == {1: "one"} and constant(nodes["empty"]) == {}
    assert constant(nodes["function"]) is len
    assert nodes["twice"] == {"unresolved": 0} and len(encoded.functions) == 1
    assert model["scale"] == nodes["batch"]["grid"][1], "equal plain constants share a number"


def test_constants_are_shared_only_where_nothing_tells_them_apart() -> None:
    constants = Constants()
    values = [1, True, 1.0, "1", 0.0, -0.0, None, math.nan]
    assert [constants.add(value) for value in values] == list(range(8))
    assert [constants.add(value) for value in values] == list(range(8))
    assert constants.add([]) != constants.add([])


def test_a_domain_is_sent_alone_and_without_functions() -> None:
    constants = Constants()
    assert encode_node(tune.choice(["a", "b"]), constants) == {"choice": [{"constant": 0}, {"constant": 1}]}
    assert constants.values == ["a", "b"]
    with pytest.raises(ConfigError, match="`sample_from` cannot be used here"):
        encode_node(tune.sample_from(len), constants)


def holding_itself() -> dict[str, Any]:
    space: dict[str, Any] = {}
    space["space"] = space
    return space


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: {"a": {1: tune.uniform(0, 1)}}, "the key 1 in `a` is an int: beside something to draw, keys must be"),
        (lambda: {2: tune.uniform(0, 1)}, "the key 2 in the search space is an int"),
        (
            lambda: {"a": {"b": {"grid_search": 3}}},
            "`grid_search` was given an int: it must be a list of values to choose from, at `a/b`",
        ),
        (lambda: {"a": [{"grid_search": []}]}, "`grid_search` has nothing to choose from, at `a/0`"),
        (lambda: {"a": Float(None, 1)}, "`lower` of `uniform` is -inf, which is not a finite number, at `a`"),
        (lambda: [1], "the search space is a list: it must be a dict of parameters by name"),
        (holding_itself, "the search space is nested too deep, or holds itself"),
    ],
)
def test_a_bad_space_is_one_error_that_names_the_parameter(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        encode_space(make())


def functions_of(**functions: Callable[..., Any]) -> tuple[dict[str, Any], list[Callable[..., Any]]]:
    return {name: unresolved(index) for index, name in enumerate(functions)}, list(functions.values())


def test_functions_see_the_config_in_every_way_that_scripts_use() -> None:
    markers, functions = functions_of(
        by_attribute=lambda spec: spec.config.lr * 2,
        by_item=lambda spec: spec["config"]["model"]["width"],
        directly=lambda config: config["lr"],
        nested=lambda config: config.model.width + config["list"][0],
        nothing=lambda _: 7,
        default=lambda config: config.get("missing", 3),
        whole=lambda spec: spec.config.model,
        looks=lambda spec: "lr" in spec.config and "nothing of the kind" not in spec,
    )
    config = {"lr": 0.5, "model": {"width": 8}, "list": [1], **markers}
    assert resolve(config, functions) == {
        "lr": 0.5,
        "model": {"width": 8},
        "list": [1],
        "by_attribute": 1.0,
        "by_item": 8,
        "directly": 0.5,
        "nested": 9,
        "nothing": 7,
        "default": 3,
        "whole": {"width": 8},
        "looks": True,
    }
    assert config["nothing"] == unresolved(4), "the config that was given stays as it was"


def test_functions_may_need_each_other_and_each_is_called_once() -> None:
    """ENCODE-2"""
    called = []

    def note(name: str, value: Any) -> Any:
        called.append(name)
        return value

    config = {
        "c": unresolved(0),
        "inner": {"b": unresolved(1), "kept": [1, 2]},
        "list": [5, unresolved(2)],
        "kept": {"as": "it is"},
    }
    functions = [
        lambda spec: note("c", spec.config.inner.b + 1),
        lambda spec: note("b", spec.config["list"][1] * 10),
        lambda spec: note("a", 4),
    ]
    resolved = resolve(config, functions)
    assert resolved == {"c": 41, "inner": {"b": 40, "kept": [1, 2]}, "list": [5, 4], "kept": {"as": "it is"}}
    assert sorted(called) == ["a", "b", "c"]
    assert resolved["kept"] is config["kept"], "what holds no marker is not copied"


def test_a_config_without_functions_is_the_same_config() -> None:
    config = {"a": {"b": [1]}}
    assert resolve(config, []) is config
    assert resolve(config, [len]) is config


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        (
            {"a": lambda c: c.b, "b": lambda c: c.a},
            "functions of `sample_from` need each other's values: `a` needs `b` needs `a`",
        ),
        ({"a": lambda spec: spec.config.a}, "need each other's values: `a` needs `a`"),
        (
            {"a": lambda spec: spec.config.gone},
            "the function of `sample_from` for `a` asks for `gone`, which the config does not have",
        ),
        ({"a": lambda config: config["model"]["gone"]}, "for `a` asks for `model/gone`, which"),
        ({"a": lambda c: c.b, "b": lambda c: c.gone}, "for `b` asks for `gone`, which the config does not have"),
    ],
)
def test_a_circle_or_a_missing_key_is_one_error_that_names_the_parameter(
    functions: dict[str, Callable[..., Any]], text: str
) -> None:
    markers, called = functions_of(**functions)
    with pytest.raises(ConfigError, match=re.escape(text)):
        resolve({"model": {"width": 1}, **markers}, called)


def test_an_error_of_the_users_function_stays_and_says_whose_it_is() -> None:
    markers, functions = functions_of(a=lambda spec: 1 / 0)
    with pytest.raises(ZeroDivisionError) as raised:
        resolve(markers, functions)
    assert raised.value.__notes__ == ["raised by the function of `sample_from` for `a`"]


def test_spaces_are_made_without_any_library() -> None:
    source = (
        "import sys; from carril import tune; tune.choice([tune.uniform(0, 1)]).sample(); "
        "import carril.tune.search; carril.tune.search.TPESearch(); "
        "print([name for name in ('numpy', 'pandas', 'optuna', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
