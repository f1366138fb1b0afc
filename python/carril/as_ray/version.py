"""`ray._version`: the version that is followed, and a commit that is none of Ray's."""

import importlib

version: str = importlib.import_module("ray").__version__
commit = "carril"
