"""Says of a keyword argument that one of our functions does not take which Ray took it.

Python raises the TypeError before a line of the function runs, so the hint is added to the error afterwards: where it
ends the script (`install` puts a hook in front of Python's), and where a worker describes it for the driver.
"""

import sys
from types import FrameType, ModuleType, TracebackType

_SAYS = "() got an unexpected keyword argument '"


def explain(error: BaseException) -> None:
    """Adds a note to an error that some Ray would not have raised. Never raises itself."""
    try:
        if type(error) is not TypeError or getattr(error, "__notes__", None):
            return
        function, says, parameter = str(error).partition(_SAYS)
        if says and _is_call_of_ours(error.__traceback__, function):
            from carril.as_ray import generations

            for hint in generations.hints(function, parameter.rstrip("'")):
                error.add_note(f"hint: {hint}")
    except Exception:  # only a help: whatever is odd about the objects of a script, the error itself is shown
        return


def _is_call_of_ours(trace: TracebackType | None, function: str) -> bool:
    """Whether the frame that raised mentions a function or class of carril's of that name.

    A method is taken for ours by its class: the object may be the result of another call, which no name stands for.
    """
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    owner, _, last = function.rpartition(".")
    if owner and last != "__init__":
        loaded = [module for name, module in sys.modules.items() if name.startswith("carril.")]
        return any(isinstance(vars(module).get(owner), type) for module in loaded)
    wanted = owner or last
    return any(
        getattr(value, "__name__", None) == wanted and (getattr(value, "__module__", None) or "").startswith("carril")
        for value in _mentioned(trace.tb_frame)
    )


def _mentioned(frame: FrameType) -> list[object]:
    """What the names of a frame's code stand for, by themselves and in the modules among them."""
    names = [*frame.f_code.co_names, *frame.f_code.co_varnames, *frame.f_code.co_freevars]
    found = [value for name, value in {**frame.f_globals, **frame.f_locals}.items() if name in names]
    # `ray.tune.run` is a module in a module.
    for _ in range(3):
        modules = [value for value in found if isinstance(value, ModuleType)]
        found += [vars(module)[name] for module in modules for name in names if name in vars(module)]
    return found


def install() -> None:
    """Puts a hook in front of the one that shows the error that ends the script."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        explain(error)
        before(kind, error, trace)

    sys.excepthook = hook
