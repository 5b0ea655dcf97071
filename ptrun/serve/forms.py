"""What the OpenAPI document says: requests, and answers, in OpenAI's forms where it has some."""

from typing import Any, Generic, Literal, NotRequired, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ptrun.serve.requests import ChatRequest, CompletionRequest, PredictRequest, RowsRequest

# fmt: off
Entry = TypeVar("Entry")
Usage = TypedDict("Usage", {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int})
Likely = TypedDict("Likely", {"token": str, "logprob": float, "bytes": list[int]})
Scored = TypedDict("Scored", {
    "token": str, "logprob": float, "bytes": list[int], "top_logprobs": list[Likely],
})
ChatScores = TypedDict("ChatScores", {"content": list[Scored], "refusal": None})
TextScores = TypedDict("TextScores", {
    "tokens": list[str], "token_logprobs": list[float | None],
    "top_logprobs": list[dict[str, float] | None], "text_offset": list[int],
})
Function = TypedDict("Function", {"name": str, "arguments": str})
Call = TypedDict("Call", {
    "id": str, "type": Literal["function"], "function": Function, "index": NotRequired[int],
})
Message = TypedDict("Message", {
    "role": Literal["assistant"], "content": str | None, "refusal": None,
    "tool_calls": NotRequired[list[Call]],
})
Delta = TypedDict(
    "Delta", {"role": Literal["assistant"], "content": str, "tool_calls": list[Call]}, total=False
)
Ended = Literal["stop", "length", "tool_calls"]
ChatChoice = TypedDict("ChatChoice", {
    "index": int, "message": Message, "logprobs": ChatScores | None, "finish_reason": Ended,
})
ChatPiece = TypedDict("ChatPiece", {
    "index": int, "delta": Delta, "logprobs": ChatScores | None, "finish_reason": Ended | None,
})
TextChoice = TypedDict("TextChoice", {
    "index": int, "text": str, "logprobs": TextScores | None, "finish_reason": Ended | None,
})
Run = TypedDict("Run", {
    "id": str, "object": Literal["model"], "created": int, "owned_by": str,
    "ptrun": NotRequired[dict[str, Any]],
})
Label = TypedDict("Label", {
    "index": int, "label": Any, "probabilities": dict[str, float] | list[float],
    "shortened": NotRequired[bool],
})
Line = TypedDict("Line", {
    "id": int | str, "prediction": Any, "option": NotRequired[Any],
    "probability": NotRequired[float], "shortened": NotRequired[bool],
})
Fault = TypedDict("Fault", {"message": str, "type": str, "param": str | None, "code": str | None})
Error = TypedDict("Error", {"error": Fault})
# fmt: on


class Written(TypedDict, Generic[Entry]):
    """Texts, or a piece of a stream."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk", "text_completion"]
    created: int
    model: str
    choices: list[Entry]
    usage: NotRequired[Usage | None]


class Listed(TypedDict, Generic[Entry]):
    """Runs, or the answers of one."""

    object: Literal["list"]
    model: NotRequired[str]
    data: list[Entry]


_FORMS: dict[str, tuple[Any, ...]] = {  # of a request, an answer, and a piece of a stream
    "/v1/completions": (CompletionRequest, Written[TextChoice], Written[TextChoice]),
    "/v1/chat/completions": (ChatRequest, Written[ChatChoice], Written[ChatPiece]),
    "/v1/classify": (RowsRequest, Listed[Label]),
    "/v1/predict": (PredictRequest, Listed[Line], Written[TextChoice]),
    "/v1/models": (None, Listed[Run]),
    "/v1/models/{name}": (None, Run),
    "/health": (None, dict[str, str]),
}
_ASKING = (400, 408, 413, 429, 499, 504)


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document: FastAPI's, with what routes read and send themselves."""
    content = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas: dict[str, Any] = {}

    def schema(form: Any) -> dict[str, Any]:
        described = TypeAdapter(form).json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(described.pop("$defs", {}))
        return described

    def body(form: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schema(form)}}

    def events(form: Any) -> dict[str, Any]:
        text = {"type": "string", "contentMediaType": "application/json"}
        data = [{**text, "contentSchema": schema(form | Error)}, {"const": "[DONE]"}]
        item = {"type": "object", "properties": {"data": {"anyOf": data}}, "required": ["data"]}
        return {"text/event-stream": {"itemSchema": item}}

    for place, (asked, answer, *piece) in _FORMS.items():
        (route,) = content["paths"][place].values()
        route["responses"] = {"200": {"description": "the answer", "content": body(answer)}}
        for form in piece:
            route["responses"]["200"]["content"] |= events(form)
        for status in (401, 404, 421, 500, *(_ASKING if asked else ())):
            fault = {"description": "an error", "content": body(Error)}
            route["responses"][str(status)] = fault
        if asked:
            route["requestBody"] = {"required": True, "content": body(asked)}
    content["components"] = {"schemas": schemas}
    return content
