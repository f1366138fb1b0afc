"""The name `ray`, standing for carril under `carril as-ray`.

Everything below is made from the table `carril.as_ray.names` when it is asked for; what carril does not have raises its
`NotAvailableError`. `import ray` loads none of `ray.train`, `ray.air` and the others: scripts that name them import
them, and whether a script names `ray.air` decides which generation's `Result` it gets.
"""

import sys as _sys

# The version whose names and behaviour are followed. The command `ray` reads it from this line.
__version__ = "2.60.0"

try:
    import carril as _carril  # noqa: F401
except ModuleNotFoundError as _error:
    if _error.name != "carril":
        raise
    raise ImportError(
        f"`ray` stands for carril here, and `{_sys.executable}` has no carril\n"
        f"hint: install it into that environment: `{_sys.executable} -m pip install carril`"
    ) from None

from carril.as_ray import check as _check
from carril.as_ray import finder as _finder
from carril.as_ray import keywords as _keywords

_check.refuse_real_ray()
_finder.install()
_keywords.install()
_finder.fill(_sys.modules[__name__])
