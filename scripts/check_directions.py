"""Checks the directions of the dependencies between the crates.

Each crate may use only what stands before it here; an edge that is not listed is an error, and so is PyO3 outside `py`.
Dependencies for development (tests) are free.
"""

import sys
import tomllib
from pathlib import Path

MAY_USE: dict[str, set[str]] = {
    "types": set(),
    "core": {"types"},
    "proto": {"types"},
    "net": {"proto", "types"},
    "store": {"types"},
    "data": {"store", "types"},
    "process": {"types"},
    "collective": set(),
    "head": {"core", "net", "store", "proto", "types"},
    "agent": {"net", "store", "process", "proto", "types"},
    "worker": {"collective", "net", "store", "process", "proto", "types"},
    "client": {"net", "proto", "types"},
    "private": {"head", "agent", "net", "store", "process", "proto", "types"},
    "carril": {"client", "collective", "data", "private", "worker", "store", "proto", "types"},
    "cli": {"client", "private", "head", "net", "store", "proto", "types"},
    "py": {"client", "collective", "core", "data", "worker", "store", "net", "process", "proto", "types"},
    "sim": {"head", "agent", "core", "net", "store", "proto", "types"},
    "testkit": {"client", "worker", "core", "net", "store", "proto", "types"},
}
ONLY_SERDE = {"types"}
NO_RUNTIME = {"core": {"tokio", "tonic", "rand", "getrandom"}}


def main() -> int:
    wrong: list[str] = []
    crates = Path(__file__).parent.parent / "crates"
    found = {path.parent.name: tomllib.loads(path.read_text()) for path in crates.glob("*/Cargo.toml")}
    for name, manifest in sorted(found.items()):
        uses = set(manifest.get("dependencies", {}))
        ours = {use.removeprefix("carril-") for use in uses if use.startswith("carril-")}
        others = uses - {f"carril-{use}" for use in ours}
        if name not in MAY_USE:
            wrong.append(f"`{name}` is not in the list of this script")
            continue
        wrong += [f"`{name}` must not use `{use}`" for use in sorted(ours - MAY_USE[name])]
        if name != "py" and "pyo3" in others:
            wrong.append(f"`{name}` must not use PyO3: only `py` does")
        if name in ONLY_SERDE and others - {"serde"}:
            wrong.append(f"`{name}` must depend on serde only, not on {sorted(others - {'serde'})}")
        wrong += [f"`{name}` must not use `{use}`" for use in sorted(others & NO_RUNTIME.get(name, set()))]
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
