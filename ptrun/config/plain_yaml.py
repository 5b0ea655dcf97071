"""The one reader of YAML: plain data of a bounded size, whoever wrote it.

Values are read as OmegaConf reads them: `2e-5` is a number, a date is a text, and a repeated key
is an error. No tag makes an object, and no alias makes the data huge. libyaml splits the text if
it is installed; nodes are made here, because libyaml's own recursion ends a process at deep
nesting. `dump` writes what `load` reads.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError

_CALL = re.compile(r"\$\{.*:", re.DOTALL)
_MOST_VALUES = 100_000
_POWER = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9_]*)?[eE][-+]?[0-9]+")
_FLOAT, _MERGE = "tag:yaml.org,2002:float", "tag:yaml.org,2002:merge"
_PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "bool", "null")}
_PLAIN |= {_FLOAT, _MERGE}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some builds lack the faster ones
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Reader(_Loader, Composer):  # type: ignore[misc]
    """A loader without dates and with powers of ten."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in known if not tag.endswith(":timestamp")]
        for first, known in _Loader.yaml_implicit_resolvers.items()
    }

    get_single_node = Composer.get_single_node

    def __init__(self, text: str) -> None:
        _Loader.__init__(self, text)
        Composer.__init__(self)  # type: ignore[no-untyped-call]


class _Writer(_Dumper):  # type: ignore[misc]
    """A dumper that puts in quotes the texts which the reader would take for numbers."""


for _own in (_Reader, _Writer):
    _own.add_implicit_resolver(_FLOAT, _POWER, list("-+0123456789"))


def load_plain(text: str) -> Any:
    """Return the content of YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, has a tag that is no plain data, or a key is repeated.
        ValueError: aliases make it huge or endless, it is nested too deeply, or a number has
            thousands of digits.
    """
    loader = _Reader(text)
    try:
        node = loader.get_single_node()  # type: ignore[no-untyped-call]
        _check(node)  # before `<<: [*a, *a]` is expanded
        return None if node is None else loader.construct_document(node)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    finally:
        loader.dispose()


def read(file: Path) -> Any:
    """Return the content of a file; `load` tells what it raises."""
    return load_plain(file.read_text(encoding="utf-8"))


def dump(content: Any) -> str:
    """Return plain data as YAML. Keys keep their order: that of labels and patterns counts."""
    text: str = yaml.dump(content, Dumper=_Writer, allow_unicode=True, sort_keys=False, width=100)
    return text


def call(content: Any) -> str | None:
    """Return the first text that calls a resolver of OmegaConf; None if there is none.

    `${oc.env:NAME}` reads a variable of the environment, which may hold a secret.
    """
    left = [content]
    while left:
        inside = left.pop()
        if isinstance(inside, str) and _CALL.search(inside):
            return inside
        if isinstance(inside, dict):
            left += [*inside.keys(), *inside.values()]
        elif isinstance(inside, list):
            left += inside
    return None


def _check(node: Any) -> None:
    """Refuse nodes that are no plain data, or that aliases make huge or endless.

    Raises:
        yaml.YAMLError: a tag is no plain data, or a key is repeated.
        ValueError: there are more than 100,000 values: a line can stand for a billion.
    """
    left, count = [] if node is None else [node], 0
    while left:
        inside = left.pop()
        count += 1
        if count > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES:,} values; write it without aliases")
        if inside.tag not in _PLAIN:
            raise _wrong(f"the tag {inside.tag} is no plain data", inside)
        if isinstance(inside, yaml.MappingNode):
            _check_keys(inside)
            left += [part for pair in inside.value for part in pair if not _is_name(part, pair)]
        elif isinstance(inside, yaml.SequenceNode):
            left += inside.value


def _check_keys(mapping: yaml.MappingNode) -> None:
    """Refuse a repeated or foreign plain key."""
    seen = set()
    for key in (own for own, _ in mapping.value if isinstance(own, yaml.ScalarNode)):
        if key.tag not in _PLAIN:
            raise _wrong(f"the tag {key.tag} is no plain data", key)
        if (key.tag, key.value) in seen and key.tag != _MERGE:
            raise _wrong(f"the key {key.value} is repeated", key)
        seen.add((key.tag, key.value))


def _wrong(problem: str, node: Any) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)  # type: ignore[no-untyped-call]


def _is_name(part: Any, pair: tuple[Any, Any]) -> bool:
    """Return whether a part of a pair is a plain key, which is no value."""
    return part is pair[0] and isinstance(part, yaml.ScalarNode)
