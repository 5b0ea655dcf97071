"""YAML as plain data, whoever wrote it.

Values are read as OmegaConf reads them: `2e-5` is a number, a date is a text, and a repeated key
is an error. `dump` writes what `load_plain` reads.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_CALL = re.compile(r"\$\{.*:", re.DOTALL)  # as in ${oc.env:NAME}, which may hold a secret
_DEEPEST = 100  # brackets: libyaml's recursion would end the process
_POWER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some builds lack the faster ones
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Reader(_Loader):  # type: ignore[misc]
    """A loader with powers of ten, without dates and repeated keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        letter: [(tag, form) for tag, form in forms if not tag.endswith(":timestamp")]
        for letter, forms in _Loader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                problem = f"the key {key.value} is repeated"
                raise yaml.MarkedYAMLError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


class _Writer(_Dumper):  # type: ignore[misc]
    """A dumper that puts in quotes the texts which the reader would take for numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _yaml in (_Reader, _Writer):
    _yaml.add_implicit_resolver("tag:yaml.org,2002:float", _POWER, list("-+0123456789"))


def load_plain(text: str) -> Any:
    """Return the content of YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, or a key is repeated.
        ValueError: it has tags or aliases, which can make it huge, it is nested too deeply, or a
            number has thousands of digits.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Reader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            place = f"line {event.start_mark.line + 1}" if event.start_mark else "it"
            raise ValueError(f"{place} has a tag (!) or an alias (*); write the value itself")
    return yaml.load(text, Loader=_Reader)


def read(file: Path) -> Any:
    """Return the content of a file of ptrun's own."""
    return yaml.load(file.read_text(encoding="utf-8"), Loader=_Reader)


def dump(content: Any) -> str:
    """Return plain data as YAML. Keys keep their order: that of labels and patterns counts."""
    text: str = yaml.dump(content, Dumper=_Writer, allow_unicode=True, sort_keys=False, width=100)
    return text


def call(content: Any) -> str | None:
    """Return a text that calls a resolver of OmegaConf; None if there is none."""
    if isinstance(content, str):
        return content if _CALL.search(content) else None
    parts = [*content, *content.values()] if isinstance(content, Mapping) else content
    calls = map(call, parts if isinstance(parts, list) else ())
    return next((text for text in calls if text is not None), None)
