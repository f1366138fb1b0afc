"""The pages of docs/ are true where that can be checked: scripts run, links lead somewhere, the table of errors is complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from carril import _native

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The pages whose scripts other tests run.
ELSEWHERE = {"README.md", "docs/guide/data.md"}


def scripts() -> list[tuple[str, str]]:
    """Each block of Python, named by its page and the number of it there."""
    named = [(str(page.relative_to(ROOT)), page.read_text()) for page in PAGES]
    return [
        (f"{name}-{number}", block)
        for name, text in named
        if name not in ELSEWHERE
        for number, block in enumerate(FENCE.findall(text))
    ]


@pytest.mark.parametrize("name, script", [pytest.param(*one, id=one[0]) for one in scripts()])
def test_a_script_of_the_docs_runs(name: str, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "page.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            if ":" in path:
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_the_table_of_errors_has_every_code_with_its_origin() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (yes|no) \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        (code, origin, "yes" if again else "no") for code, origin, again in _native.error_codes()
    )
