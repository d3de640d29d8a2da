"""What a request may hold in vLLM's HTTP dialect.

It must never accept a field it would then ignore where that changes the reply; harmless ones pass.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from tertulia.core.types import Role
from tertulia.replica.constraint import Kind
from tertulia.replica.repetition import MAX_COUNT, MAX_PATTERN, RepetitionRule

SEED_BITS = 63  # JSON readers agree on integers up to here
MAX_STOPS = 16
MAX_BIASES = 1024  # logits that one request changes
MAX_BIAS = 100.0  # as in OpenAI's: enough to force or to forbid a token
SALT_CHARS = 1024  # as in vLLM
PRIORITY = 2**31
MAX_MESSAGES = 4096
MAX_USES = 1_000  # entries of the usage log in one answer
NAME_CHARS = 64  # of a name that a client made up, in an error
ANY_OBJECT = {"type": "object"}

# The first wrong item is enough: a body of nothing but wrong ones kept the event loop busy for half
# a minute, and took gigabytes, to list them all.
Item = TypeVar("Item")
Items = Annotated[list[Item], Field(fail_fast=True)]


def _few(biases: Any) -> Any:
    """Looked at before the items are, for the same reason."""
    if isinstance(biases, dict) and len(biases) > MAX_BIASES:
        raise ValueError(f"at most {MAX_BIASES} tokens")
    return biases


TokenId = Annotated[int, Field(ge=0, strict=True)]
TokenKey = Annotated[int, Field(ge=0, lt=2**31)]  # keys of JSON objects are texts
Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
StopString = Annotated[str, Field(min_length=1, max_length=256)]

# vLLM's other fields that would change the reply, with the values besides null that say "no".
REFUSED: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "watermarking": (False,),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "min_tokens": (0,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "prompt_logprobs": (),
    "top_logprobs": (0,),
    "logprob_token_ids": (),
    "prompt_embeds": (),
    "thinking_token_budget": (-1,),
    "reasoning_effort": ("none",),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "logits_processors": ([],),
    "kv_transfer_params": ({},),
    "ec_transfer_params": ({},),
    "vllm_xargs": ({},),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "documents": ([],),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "return_token_strs": (False,),
}


class BadRequest(Exception):
    """The request cannot be served; `field` names what is wrong with it."""

    def __init__(self, message: str, field: str | None) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Form:
    """What a reply must look like, and the field that says so."""

    field: str
    kind: Kind
    source: Any


class StreamOptions(BaseModel):
    """What a stream reports besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class JsonSchema(BaseModel):
    """The schema of a `response_format`; its name means nothing to us."""

    source: dict[str, Any] = Field(alias="schema")


class ResponseFormat(BaseModel):
    """OpenAI's way to ask for JSON."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema goes with the type json_schema, and only with it")
        return self


class StructuredOutputs(BaseModel):
    """vLLM's way to ask for a form, one of these."""

    model_config = ConfigDict(extra="forbid")

    json_source: dict[str, Any] | str | None = Field(default=None, alias="json")
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: Items[str] | None = None
    grammar: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("exactly one of json, json_object, regex, choice and grammar")
        return self


class RepetitionDetection(BaseModel):
    """When a reply counts as a loop; a `max_pattern_size` of 0 is never."""

    max_pattern_size: Annotated[int, Field(ge=0, le=MAX_PATTERN)] = 0
    min_pattern_size: Annotated[int, Field(ge=0)] = 0
    min_count: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_pattern_size > self.max_pattern_size:
            raise ValueError("min_pattern_size is at most max_pattern_size")
        if self.max_pattern_size > 0 and self.min_count < 2:
            raise ValueError("min_count is at least 2")
        return self

    @property
    def rule(self) -> RepetitionRule | None:
        if self.max_pattern_size == 0:
            return None
        return RepetitionRule(self.max_pattern_size, max(1, self.min_pattern_size), self.min_count)


class SamplingBody(BaseModel):
    """The fields that both kinds of completion share."""

    model_config = ConfigDict(extra="allow")  # so that `read_body` can refuse some by name

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None  # 0 and -1: all
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Annotated[dict[TokenKey, Bias], BeforeValidator(_few)] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    repetition_detection: RepetitionDetection | None = None
    seed: Annotated[int, Field(ge=-(2**SEED_BITS), lt=2**SEED_BITS)] | None = None
    stop: StopString | Annotated[Items[StopString], Field(max_length=MAX_STOPS)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stream_interval: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    ignore_eos: bool = False
    priority: Annotated[int, Field(ge=-PRIORITY, lt=PRIORITY)] = 0
    cache_salt: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)] | None = None
    # So many of the prompt's first tokens hold nothing of a person: they are cached once, for all.
    cache_shared_tokens: Annotated[int, Field(ge=0)] = 0
    session_id: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)] | None = None
    return_token_ids: bool | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    n: Literal[1] | None = 1

    @property
    def form(self) -> Form | None:
        """What the reply must look like; as in vLLM, `response_format` wins."""
        wanted = self.response_format
        if wanted is not None and wanted.json_schema is not None:
            return Form("response_format", "json", wanted.json_schema.source)
        if wanted is not None and wanted.type == "json_object":
            return Form("response_format", "json", ANY_OBJECT)
        one = self.structured_outputs
        if one is None:
            return None
        if one.json_object:
            return Form("structured_outputs", "json", ANY_OBJECT)
        sources: dict[Kind, Any] = {
            "json": one.json_source,
            "regex": one.regex,
            "choice": one.choice,
            "grammar": one.grammar,
        }
        found = [(kind, source) for kind, source in sources.items() if source is not None]
        return Form("structured_outputs", *found[0]) if found else None

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class CompletionBody(SamplingBody):
    """`POST /v1/completions`."""

    prompt: Annotated[Items[TokenId], Field(min_length=1)] | Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = 16  # OpenAI's default
    echo: Literal[False] | None = False
    logprobs: None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = 1


class TextPart(BaseModel):
    """One part of a message's content; text is the only kind there is here."""

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Items[TextPart]

    @property
    def template_role(self) -> Role:
        """`developer` is the newer name of `system`, which no template knows."""
        return "system" if self.role == "developer" else self.role

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatBody(SamplingBody):
    """`POST /v1/chat/completions`."""

    messages: Annotated[Items[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    logprobs: Literal[False] | None = False


class TokenizeBody(BaseModel):
    """`POST /tokenize`: plain text, or a chat as the template writes it."""

    model_config = ConfigDict(extra="allow")

    prompt: str | None = None
    messages: Annotated[Items[ChatMessage], Field(max_length=MAX_MESSAGES)] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class DetokenizeBody(BaseModel):
    """`POST /detokenize`."""

    tokens: Items[TokenId]


class UsageQuery(BaseModel):
    """`GET /inference/v1/usage`."""

    model_config = ConfigDict(extra="forbid")

    request_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    after: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_USES)] = 100


class AbortBody(BaseModel):
    """`POST /inference/v1/abort_requests`."""

    request_ids: Annotated[Items[str], Field(min_length=1, max_length=1024)]


class ForgetBody(BaseModel):
    """`POST /inference/v1/forget`: an owner's cache, or one conversation's."""

    cache_salt: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)]
    session_id: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)] | None = None


Body = TypeVar("Body", bound=BaseModel)


def read_body(kind: type[Body], data: bytes) -> Body:
    """The checked body, or a `BadRequest` that names the first wrong field and not its content."""
    try:
        body = kind.model_validate_json(data)
    except ValidationError as error:
        raise _refusal(error) from None
    for name, value in (body.model_extra or {}).items():
        if name in REFUSED and value is not None and value not in REFUSED[name]:
            raise BadRequest(f"{name} is not supported here", name)
    return body


def read_query(kind: type[Body], query: dict[str, str]) -> Body:
    """The checked query, or a `BadRequest` as for a body."""
    try:
        return kind.model_validate(query)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> BadRequest:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    # Names of fields may be the client's own, and as long as its body; keys of biases always are.
    steps = [str(step)[:NAME_CHARS] for step in first["loc"]]
    top = steps[0] if steps else None
    field = top if top == "logit_bias" else ".".join(steps)
    where = f"{field}: " if field else ""
    return BadRequest(f"{where}{first['msg']}", top)
