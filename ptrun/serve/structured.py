"""What a client wants a text to be: JSON of a schema, or calls of functions, as a grammar.

Calls have the form of the run's own chat template.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from ptrun.errors import UserError, shown
from ptrun.readout.calls import ID, ID_FORM, CallForm

_SPACES = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
_LARGEST, _WORD = 2**53 - 1, 2**63 - 1
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum"}
_MERGED = {"properties", "anyOf", "oneOf", "$ref"}


@dataclass(frozen=True)
class Structure:
    """What a text has to be.

    Args:
        schema: of its JSON; None: any text.
        tools: the names of functions that may be called, with the schemas of their arguments.
        required: whether a call has to be there.
        most: the calls of a text.
    """

    schema: Mapping[str, Any] | None = None
    tools: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    required: bool = False
    most: int = CallForm.most

    @property
    def key(self) -> str:
        """The key of the request that says so."""
        return "tools" if self.required or self.schema is None else "response_format"

    def reader(self, form: CallForm) -> CallForm:
        """Return the form with which calls of these functions are read."""
        return replace(form, names=tuple(name for name, _ in self.tools), most=self.most)

    def grammar(self, form: CallForm | None, spell: Callable[[str], str]) -> str:
        """Return the grammar in llguidance's form of Lark; `spell` writes a text as its part."""
        rules, choices = [], []
        if self.schema is not None and not self.required:
            choices.append("answer")
            rules.append(f'answer: " "? {_json(self.schema)}')
        if self.tools and form:
            choices.append("calls")
            join, most = form.join, self.most - 1
            more = f" ({_spelled(join, spell)} call){{0,{most}}}" if join and most else ""
            begin, end = _spelled(form.lead + form.open, spell), _spelled(form.close, spell)
            rules.append(f"calls: {begin} call{more} {end}")
            heads = [spell(name + form.between) for name, _ in self.tools]
            schemas = [_json({"type": "object"} | {**schema}) for _, schema in self.tools]
            pairs = [" ".join(pair) for pair in zip(heads, schemas, strict=True)]
            rules.append(f"call: {' | '.join(pairs)}")
        return "\n".join((f"start: {' | '.join(choices)}", *rules, f"ID: /{ID_FORM}/"))


def _spelled(text: str, spell: Callable[[str], str]) -> str:
    """Return a text as a part of a rule, with places for the ids of calls."""
    return " ID ".join(map(spell, text.split(ID)))


def _json(schema: Mapping[str, Any]) -> str:
    """Return the rule of a schema's JSON, compact or with a space behind `,` and `:`.

    It says less than the schema: objects have no properties that it does not name, and integers are
    those that every reader of JSON keeps. Schemas that are merged stay as they are.
    """
    schema = deepcopy(schema)
    for part in _parts(schema):
        for key in _BOUNDS & part.keys() - {"enum"}:  # the library would cut it
            if isinstance(part[key], int) and abs(part[key]) > _WORD:
                raise UserError(f"{key} is {shown(part[key])}; at most {_WORD}, as 64 bits hold.")
    if not any(len(part.keys() & _MERGED) > 1 or "allOf" in part for part in _parts(schema)):
        for part in _parts(schema):
            if part.get("type") == "integer" and not part.keys() & {*_BOUNDS, "const"}:
                part |= {"minimum": -_LARGEST, "maximum": _LARGEST}
            names, needed = part.get("properties"), part.get("required", [])
            if not isinstance(names, dict) or not isinstance(needed, list):
                continue  # the library names what is wrong
            if names.keys() >= {*map(str, needed)}:
                part.setdefault("additionalProperties", "patternProperties" in part)
    return f"%json {json.dumps({**schema, 'x-guidance': _SPACES})}"


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and those in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in [*schema.items()]:
        inner: Any = ()
        if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
            inner = value.values()
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(value, list):
            inner = value
        elif key in ("items", "additionalProperties"):
            inner = [value]
        for part in inner:
            yield from _parts(part)
