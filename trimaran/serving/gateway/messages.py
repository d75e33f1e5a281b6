"""What callers send and get, as the published schema shows it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Model = Annotated[
    str | None,
    Field(default=None, max_length=128, description="Which model; may be left out where one of its kind is served."),
]
TopK = Annotated[int | None, Field(default=None, ge=1, le=1000)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1)]
Pair = Annotated[list[str], Field(min_length=2, max_length=2, description="A text and its pair.")]
Inputs = Annotated[str | Annotated[list[str | Pair], Field(min_length=1)], Field(description="One text, or several.")]
Texts = Annotated[str | Annotated[list[str], Field(min_length=1)], Field(description="One text, or several.")]


PromptName = Annotated[
    str | None,
    Field(default=None, max_length=128, description="A prompt of the model, by name; by default its default one."),
]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsRequest(Request):
    input: Annotated[
        str | Annotated[list[str], Field(min_length=1)] | TokenIds | Annotated[list[TokenIds], Field(min_length=1)],
        Field(description="Texts, or token ids of the model's own vocabulary."),
    ]
    model: Model
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[
        int | None, Field(default=None, ge=1, le=65536, description="Keeps the first numbers of each vector.")
    ]
    prompt_name: PromptName
    user: Annotated[str | None, Field(default=None, max_length=256, description="Taken, and not used.")]


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: Annotated[list[float] | str, Field(description="Numbers, or base64 of little-endian 32-bit floats.")]


class EmbeddingsResponse(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class ListedModel(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str


class ModelsResponse(BaseModel):
    object: Literal["list"]
    data: list[ListedModel]


class RerankRequest(Request):
    query: str
    documents: Annotated[list[str], Field(min_length=1)]
    model: Model
    top_n: TopK
    return_documents: bool = False


class Ranked(BaseModel):
    index: int
    relevance_score: float
    document: str | None = None


class RerankResponse(BaseModel):
    model: str
    results: list[Ranked]
    usage: Usage


class ClassifyRequest(Request):
    inputs: Inputs
    model: Model
    top_k: TopK
    labels: Annotated[
        list[str] | None,
        Field(default=None, min_length=1, max_length=256, description="For a zero-shot model: the labels to try."),
    ]
    template: Annotated[
        str | None, Field(default=None, max_length=1000, description="For a zero-shot model: a sentence with {}.")
    ]
    multi_label: Annotated[
        bool | None, Field(default=None, description="For a zero-shot model: labels that do not exclude one another.")
    ]


class Label(BaseModel):
    label: str
    score: float


class ClassifyResponse(BaseModel):
    model: str
    results: list[list[Label]]
    usage: Usage


class EntitiesRequest(Request):
    inputs: Texts
    model: Model
    aggregation: Literal["none", "simple", "first", "average", "max"] = "simple"
    stride: Annotated[
        int | None, Field(default=None, ge=1, le=512, description="Reads a long text in pieces that overlap so far.")
    ]


class Entity(BaseModel):
    model_config = ConfigDict(extra="allow")
    score: float
    word: str
    start: int
    end: int


class EntitiesResponse(BaseModel):
    model: str
    results: list[list[Entity]]
    usage: Usage


class AnswerRequest(Request):
    question: str
    context: str
    model: Model
    top_k: TopK
    longest: Annotated[int | None, Field(default=None, ge=1, le=512, description="Tokens of the longest answer.")]
    no_answer: Annotated[bool | None, Field(default=None, description="Whether «no answer» may win.")]


class Span(BaseModel):
    answer: str
    score: float
    start: int
    end: int


class AnswerResponse(BaseModel):
    model: str
    answers: list[Span]
    usage: Usage


class FillRequest(Request):
    inputs: Annotated[
        str | Annotated[list[str], Field(min_length=1)], Field(description="Texts that hold the model's mask token.")
    ]
    model: Model
    top_k: TopK


class Filling(BaseModel):
    token: int
    token_str: str
    score: float
    sequence: str


class FillResponse(BaseModel):
    model: str
    results: Annotated[list[list[list[Filling]]], Field(description="For each text, for each mask, the best tokens.")]
    usage: Usage


class EncodeRequest(BaseModel):
    """bert-as-service's. It took whatever else was sent, so this does."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    id: Annotated[int | str | None, Field(default=None, description="Given back as it came.")]
    texts: Annotated[
        list[str | list[str]],
        Field(min_length=1, description="Texts, or with is_tokenized lists of tokens; ` ||| ` parts a pair."),
    ]
    is_tokenized: bool = False
    prompt_name: PromptName


class EncodeResponse(BaseModel):
    id: int | str | None
    result: list[list[float]]
    status: Literal[200]


class StatusResponse(BaseModel):
    status: str


class ErrorFacts(BaseModel):
    message: str
    type: str
    param: str | None
    code: str
    request_id: str


class ErrorResponse(BaseModel):
    error: ErrorFacts
