"""What a client may ask of `ptrun serve`: one typed model for each route.

A key that is not obeyed is an error with its name. `HARMLESS` keys change no answer, and `NEUTRAL`
values ask for what every answer is. A null is an absent key, and 2.0 is 2.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ptrun.errors import shown
from ptrun.serve.rows import Wish
from ptrun.serve.structured import Structure
from ptrun.task.conversation import BESIDE

HARMLESS = (
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention",
)  # fmt: skip
NEUTRAL: Mapping[str, Any] = {
    "echo": False, "suffix": "", "functions": [], "function_call": "none",
    "modalities": ["text"],
}  # fmt: skip
_EXPECTED = {
    "string_type": "expected a text", "int_type": "expected a whole number",
    "float_type": "expected a number", "bool_type": "expected true or false",
    "model_type": "expected an object", "dict_type": "expected an object",
    "model_attributes_type": "expected an object", "too_short": "expected one or more",
    "string_too_short": "expected a text that is not empty", "finite_number": "expected a number",
}  # fmt: skip
Model = TypeVar("Model", bound=BaseModel)
_NAMED = '"none", or with tools "auto", "required" or {"type": "function", "function": {"name": …}}'
_COLD = 1e-3  # a temperature below it takes the likeliest token


class InvalidRequest(ValueError):
    """A request that is not as the API describes it; `key` is what is wrong."""

    def __init__(self, message: str, key: str | None = None):
        super().__init__(message)
        self.key = key


Whole = Annotated[
    int, BeforeValidator(lambda n: int(n) if isinstance(n, float) and n.is_integer() else n)
]
Tokens = Annotated[Whole, Field(ge=1, le=1_000_000)]
Likeliest = Annotated[Whole, Field(ge=0, le=20)]
Share = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Stop = Annotated[str, Field(min_length=1, max_length=200)]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
Prompt = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Whole], Field(min_length=1, fail_fast=True)]
)


def _described(schema: dict[str, Any], kind: "type[_Typed]") -> None:
    """Add to a JSON schema what `_plain` leaves out: nulls, and keys that ask for nothing."""
    fields = schema["properties"]
    for key in fields.keys() - {*schema.get("required", ())}:
        fields[key] = {"anyOf": [fields[key], {"type": "null"}]}
    usual: dict[str, Any] = {key: {"enum": [value, None]} for key, value in kind.neutral.items()}
    schema["properties"] = {**usual, **{key: {} for key in kind.harmless}, **fields}


class _Typed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra=_described)
    neutral: ClassVar[Mapping[str, Any]] = {"annotations": []}
    harmless: ClassVar[Sequence[str]] = ()

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, content: Any) -> Any:
        """Leave out nulls, and keys whose value asks for nothing."""

        def says_nothing(key: str, value: Any) -> bool:
            if value is None or key in cls.model_fields:
                return value is None
            usual = cls.neutral.get(key)
            same = usual == value and isinstance(usual, bool) == isinstance(value, bool)
            return same or key in cls.harmless

        if not isinstance(content, dict):
            return content
        return {key: value for key, value in content.items() if not says_nothing(key, value)}


class TextPart(_Typed):
    """A part of a turn's content."""

    type: Literal["text"]
    text: str


class Turn(_Typed):
    """A turn of a conversation; `developer` is another word for `system`."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: list[dict[str, Any]] = []
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None

    @model_validator(mode="after")
    def _says(self) -> "Turn":
        if self.content is None and not (self.tool_calls and self.role == "assistant"):
            raise ValueError("content is missing")
        return self


class Schema(_Typed):
    """A JSON schema that a text fits; its name and description are read by nobody."""

    name: Name
    description: str = ""
    schema_: dict[str, Any] = Field({}, alias="schema")
    strict: bool = False


class Format(_Typed):
    """The form of a text; some clients send a schema beside `json_object`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None
    schema_: dict[str, Any] = Field({}, alias="schema")

    @model_validator(mode="after")
    def _has_one_schema(self) -> "Format":
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError('json_schema goes with the type "json_schema"')
        if self.schema_ and self.type != "json_object":
            raise ValueError('schema goes with the type "json_object"')
        return self

    @property
    def structure(self) -> Structure | None:
        """What the text has to be."""
        if self.type == "text":
            return None
        schema = self.json_schema.schema_ if self.json_schema else self.schema_
        return Structure(schema or {"type": "object"})


class Function(_Typed):
    """A function that a model may call; without parameters it has none."""

    name: Name
    description: str = ""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    strict: bool = False


class Tool(_Typed):
    """A tool."""

    type: Literal["function"]
    function: Function


class StreamOptions(_Typed):
    """Whether the last piece of a stream has the counts of tokens."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class TextRequest(_Typed):
    """What completions and chats have in common."""

    neutral, harmless = NEUTRAL, HARMLESS

    model: Annotated[str, Field(min_length=1, max_length=500)]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Annotated[Whole, Field(ge=1, le=8)] = 1
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Share | None = None
    top_k: Annotated[Whole, Field(ge=-1, le=1_000_000)] | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[str, Bias], Field(max_length=1024)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=8)] = []
    seed: Annotated[Whole, Field(ge=-(2**63), lt=2**63)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    response_format: Format | None = None

    @property
    def structure(self) -> Structure | None:
        """What the text has to be."""
        return self.response_format.structure if self.response_format else None

    @field_validator("logit_bias")
    @classmethod
    def _has_tokens(cls, bias: dict[str, float]) -> dict[str, float]:
        if wrong := [key for key in bias if not re.fullmatch("0|[1-9][0-9]{0,8}", key)]:
            raise ValueError(f"{shown(wrong[0])} is no token id")
        return bias

    @property
    def wish(self) -> Wish:
        """How the text is written."""
        cold = self.temperature is not None and self.temperature < _COLD
        same = ("seed", "repetition_penalty", "min_p", "presence_penalty", "frequency_penalty")
        bias = self.logit_bias and tuple(
            (int(key), share) for key, share in self.logit_bias.items()
        )
        return Wish(
            max_tokens=self.max_completion_tokens or self.max_tokens,
            temperature=0.0 if cold else self.temperature,
            top_p=None if self.top_p is None else max(self.top_p, 1e-6),
            top_k=self.top_k and max(self.top_k, 0),  # 0 and -1 are all
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            logit_bias=bias or None,
            structure=self.structure,
            **{key: getattr(self, key) for key in same},
        )


class CompletionRequest(TextRequest):
    """`POST /v1/completions`; a prompt is a text or its token ids."""

    prompt: Prompt | Annotated[list[Prompt], Field(min_length=1, fail_fast=True)]
    max_tokens: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = None
    best_of: Whole | None = None
    echo: bool = False
    logprobs: Likeliest | None = None

    @model_validator(mode="after")
    def _echoes(self) -> "CompletionRequest":
        if self.best_of not in (None, self.n):
            raise ValueError(f"best_of: every text is returned, so it is n ({self.n}) or absent.")
        if self.echo and self.stream:
            raise ValueError("echo: a stream has none. Leave one of them out.")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens: 0 writes nothing, which needs echo. Use 1 or more.")
        return self

    @property
    def wish(self) -> Wish:
        """How the text is written, and what is said of the prompt."""
        return replace(super().wish, echo=self.echo, logprobs=self.logprobs)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each prompt."""
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return [{"prompt": prompt} for prompt in (self.prompt if several else [self.prompt])]


class ChatRequest(TextRequest):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Turn], Field(min_length=1)]
    logprobs: bool = False
    top_logprobs: Likeliest | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] = []
    tool_choice: str | dict[str, Any] = ""
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] = {}

    @field_validator("messages")
    @classmethod
    def _asks(cls, turns: list[Turn]) -> list[Turn]:
        if turns[-1].role == "assistant":
            raise ValueError("the last turn is the assistant's")
        return turns

    @model_validator(mode="after")
    def _chooses(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs: needs logprobs, true.")
        names = [tool.function.name for tool in self.tools]
        named = [{"type": "function", "function": {"name": name}} for name in names]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"tools: two functions are named {name}.")
        if self.tool_choice not in ["", "none", *(["auto", "required"] if names else ()), *named]:
            value = shown(self.tool_choice)
            raise ValueError(f"tool_choice: {value}; expected {_NAMED} with the name of a tool.")
        for function in (tool.function for tool in self.tools):
            if (kind := function.parameters.get("type", "object")) != "object":
                value = f"type {shown(kind)}; expected object"
                raise ValueError(f"tools: the parameters of {function.name} have the {value}.")
        return self

    @property
    def structure(self) -> Structure | None:
        """What the text has to be."""
        if not self.tools or self.tool_choice == "none":
            return super().structure
        chosen = self.tool_choice["function"]["name"] if isinstance(self.tool_choice, dict) else ""
        functions = (tool.function for tool in self.tools)
        form = super().structure or Structure()
        return replace(
            form,
            tools=tuple((f.name, f.parameters) for f in functions if chosen in ("", f.name)),
            required=self.tool_choice not in ("", "auto"),
            most=1 if chosen or not self.parallel_tool_calls else form.most,
        )

    @property
    def wish(self) -> Wish:
        """How the text is written, and what is said of its tokens."""
        return replace(super().wish, logprobs=(self.top_logprobs or 0) if self.logprobs else None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row with the turns, and what a chat template reads beside them."""
        return [self.model_dump(include={*BESIDE, "messages"}, exclude_unset=True)]


class RowsRequest(_Typed):
    """`POST /v1/classify`."""

    model: Annotated[str, Field(min_length=1, max_length=500)]
    input: str | dict[str, Any] | list[str | dict[str, Any]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The fields of each row."""
        every = self.input if isinstance(self.input, list) else [self.input]
        return [{"prompt": row} if isinstance(row, str) else row for row in every]


class PredictRequest(RowsRequest):
    """`POST /v1/predict`; texts can be streamed, as those of `/v1/completions`."""

    stream: bool = False


def parsed(kind: type[Model], content: Any) -> Model:
    """Return a request as its model.

    Raises:
        InvalidRequest: names the key, its value, and what is expected.
    """
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the body has an unpaired surrogate, \\ud8.. without \\udc.."
        ) from error
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise _told(error.errors(include_url=False)) from None


def _told(errors: Sequence[Any]) -> InvalidRequest:
    """Return the first error in words; of the forms that a value may have, the deepest one's."""
    same = [error for error in errors if error["loc"][:1] == errors[0]["loc"][:1]]
    deepest = max(same, key=lambda error: (error["type"] == "extra_forbidden", len(error["loc"])))
    place = [p for p in deepest["loc"] if isinstance(p, int) or (p.isidentifier() and p != "str")]
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
    if deepest["type"] == "extra_forbidden":
        said = "offered" if key in NEUTRAL else "read"
        return InvalidRequest(f"{key}: not {said} by this server; leave it out.", key)
    if deepest["type"] == "missing":
        return InvalidRequest(f"{key}: missing.", key)
    said = _EXPECTED.get(deepest["type"], deepest["msg"][:1].lower() + deepest["msg"][1:])
    said = said.removeprefix("value error, ")
    if not key and deepest["type"] == "value_error":
        return InvalidRequest(said, said.partition(":")[0])
    if not key:
        return InvalidRequest("the body is no JSON object.")
    return InvalidRequest(f"{key} is {shown(deepest['input'])}; {said}.", key)
