"""A YAML file, read by libyaml if it is installed: the papers' files have thousands of lines.

Values are read as OmegaConf reads them: `2e-5` is a number, a date is a text, and a repeated key
is an error.
"""

import re
from pathlib import Path
from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_POWER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+")


class _Reader(_Base):  # type: ignore[misc]
    """A loader without dates and with powers of ten."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in known if not tag.endswith(":timestamp")]
        for first, known in _Base.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice} is repeated")
        return super().construct_mapping(node, deep)


_Reader.add_implicit_resolver("tag:yaml.org,2002:float", _POWER, list("-+0123456789"))


def load_yaml(file: Path) -> Any:
    """Return the content of a file.

    Raises:
        yaml.YAMLError: the file is not YAML, or a key is repeated.
    """
    return yaml.load(file.read_text(encoding="utf-8"), _Reader)
