"""The Dockerfile has a CPU and a CUDA variant, made from files that are there, for a plain user.

Nothing here builds an image.
"""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "Dockerfile"


def instructions():
    """Return (instruction, argument) pairs, continuations joined and comments left out."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [
        (name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in lines)
    ]


def values(name):
    return [argument for own, argument in instructions() if own == name]


def test_the_version_of_python_and_the_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (minor,) = {int(m) for one in values("FROM") for m in re.findall(r"python:3\.(\d+)", one)}
    low, high = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups())
    assert low <= minor < high
    chosen = [e.split("=", 1)[1].split(",") for e in values("ENV") if e.startswith("EXTRAS=")]
    assert len(chosen) == 2
    assert {extra for extras in chosen for extra in extras} <= set(project["optional-dependencies"])


def test_what_is_copied_exists_and_is_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {source for one in values("COPY") for source in one.split()[:-1]}
    assert copied == kept and all((ROOT / source).exists() for source in copied)
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = package["tool"]["hatch"]["build"]["targets"]["wheel"]
    built = {*wheel["packages"], *wheel["force-include"], package["project"]["readme"]}
    assert {*built, *package["project"]["license-files"]} <= copied


def test_versions_are_pinned_and_no_registry_is_named():
    (install,) = [run for run in values("RUN") if "pip install" in run]
    assert "-c constraints.txt" in install and "--no-cache-dir" in install
    assert "://" not in FILE.read_text(encoding="utf-8")


def test_the_program_is_started_without_rights():
    users = values("USER")
    assert users and int(users[-1]) > 0
    assert json.loads(values("ENTRYPOINT")[-1]) == ["ptrun"]
    last = [name for name, _ in instructions()][-6:]
    assert last == ["USER", "ENTRYPOINT", "FROM", "CMD", "FROM", "CMD"]
    served, usual = map(json.loads, values("CMD"))
    assert served[0] == "serve" and usual == ["--help"]
