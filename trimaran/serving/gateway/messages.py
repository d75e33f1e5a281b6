"""The bodies of requests and answers. The OpenAPI description shows them under these names."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from trimaran.core.choices import MOST_TEXTS

Item = TypeVar("Item")
# A list is read up to its first error. An error for each of a million items would take half a minute of the event loop.
Listed = Annotated[list[Item], Field(fail_fast=True, max_length=MOST_TEXTS)]
Several = Annotated[Listed[Item], Field(min_length=1)]

ModelName = Annotated[
    str | None,
    Field(default=None, max_length=128, description="Which model; optional if only one of its kind is served."),
]
TopK = Annotated[int | None, Field(default=None, ge=1, le=1000)]
TokenIds = Several[Annotated[int, Field(ge=0, le=2**31 - 1)]]
Pair = Annotated[list[str], Field(fail_fast=True, min_length=2, max_length=2, description="A text and its pair.")]
TextInputs = Annotated[str | Several[str | Pair], Field(description="One text, or several.")]
Texts = Annotated[str | Several[str], Field(description="One text, or several.")]
TextsOrIds = Annotated[
    str | Several[str] | TokenIds | Several[TokenIds],
    Field(description="Texts, or token ids of the model's own vocabulary."),
]

# What the model reads with every text of the request: each has a limit of its own, because it is multiplied.
LabelName = Annotated[str, Field(max_length=1000)]
Word = Annotated[str, Field(max_length=128)]
InstructionWords = Annotated[
    str | None,
    Field(
        default=None,
        max_length=4000,
        description="Words for the model in the place of its own prompt, such as what makes a document relevant.",
    ),
]

PromptName = Annotated[
    str | None,
    Field(
        default=None,
        max_length=128,
        description="The name of one of the model's prompts; if it is left out, the model's default prompt.",
    ),
]


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    # A body that works, for the OpenAPI description and the page.
    example: ClassVar[dict[str, Any]]


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Answered(BaseModel):
    model: str
    usage: Usage


class EmbeddingsRequest(RequestBody):
    example = {"input": ["The harbour was quiet.", "A storm came up."]}
    input: TextsOrIds
    model: ModelName
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[
        int | None, Field(default=None, ge=1, le=65536, description="Keeps the first numbers of each vector.")
    ]
    output_dtype: Annotated[
        Literal["float", "int8", "uint8", "binary", "ubinary"],
        Field(default="float", description="What the numbers are. Binary vectors have eight dimensions in a byte."),
    ]
    overflow: Annotated[
        Literal["cut", "windows", "windows-max"],
        Field(default="cut", description="Too long texts are cut, or the mean or maximum over pieces read whole."),
    ]
    prompt_name: PromptName
    user: Annotated[str | None, Field(default=None, max_length=256, description="Accepted and not used.")]


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: Annotated[
        list[float] | str, Field(description="Numbers, or base64 of little-endian 32-bit floats, or of bytes.")
    ]


class EmbeddingsResponse(Answered):
    object: Literal["list"]
    data: list[Embedding]


class ListedModel(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    proof: Annotated[
        Literal["unproven"] | None, Field(default=None, description="Present for a model laid out without a proof.")
    ]


class ModelsResponse(BaseModel):
    object: Literal["list"]
    data: list[ListedModel]


class RerankRequest(RequestBody):
    example = {"query": "What floats?", "documents": ["A stone sinks.", "A boat floats."]}
    query: str
    documents: Several[str] | None = None
    model: ModelName
    top_n: TopK
    return_documents: bool = False
    instruction: InstructionWords
    # As text-embeddings-inference is asked.
    texts: Annotated[Several[str] | None, Field(default=None, description="TEI's name of `documents`.")]
    return_text: bool = False
    raw_scores: Annotated[
        bool, Field(default=False, description="Only false: scores are those of the model's own library.")
    ]
    truncate: Annotated[bool | None, Field(default=None, description="Accepted: long texts are always cut.")]
    truncation_direction: Annotated[str | None, Field(default=None, max_length=16, description="Accepted, not used.")]


class Ranked(BaseModel):
    index: int
    relevance_score: float
    document: str | None = None


class RerankResponse(Answered):
    results: list[Ranked]


class ChooseRequest(RequestBody):
    example = {"text": "It began to rain, so", "choices": ["she opened her umbrella.", "the stone sang."]}
    text: str
    choices: Annotated[Listed[str], Field(min_length=2)]
    model: ModelName


class Choice(BaseModel):
    index: int
    score: float


class ChooseResponse(Answered):
    results: list[Choice]


class FollowsRequest(RequestBody):
    example = {"pairs": [["It began to rain.", "She opened her umbrella."]]}
    pairs: Annotated[Several[Pair], Field(description="Pairs of a text and the text that may follow it.")]
    model: ModelName


class FollowsResponse(Answered):
    results: list[float]


class ScoreRequest(RequestBody):
    example = {"query": "What floats?", "documents": ["A stone sinks.", "A boat floats."]}
    query: str
    documents: Several[str]
    model: ModelName


class ScoreResponse(Answered):
    results: Annotated[list[float], Field(description="One score for each document, in their order.")]


class HybridRequest(RequestBody):
    example = {"inputs": ["The harbour was quiet."], "outputs": ["dense", "sparse"]}
    inputs: Texts
    model: ModelName
    outputs: Annotated[
        Listed[Literal["dense", "sparse", "colbert"]] | None,
        Field(default=None, min_length=1, max_length=3, description="What is wanted of one pass; all by default."),
    ]
    top_k: Annotated[TopK, Field(description="The most weighted tokens of a text.")]
    prompt_name: PromptName


class WeightedToken(BaseModel):
    token: int
    token_str: str
    weight: float


class VectorsOfTokens(BaseModel):
    tokens: list[str]
    vectors: list[list[float]]


class HybridResult(BaseModel):
    dense: Annotated[list[float] | None, Field(default=None, description="One vector for the text.")]
    sparse: Annotated[
        list[WeightedToken] | None, Field(default=None, description="The tokens that it weighs, heaviest first.")
    ]
    colbert: Annotated[
        VectorsOfTokens | None, Field(default=None, description="A vector for each token but the first.")
    ]


class HybridResponse(Answered):
    results: list[HybridResult]


class ClassifyRequest(RequestBody):
    example = {"inputs": ["A fine day on the water."]}
    inputs: TextInputs
    model: ModelName
    top_k: TopK
    labels: Annotated[
        Listed[LabelName] | None,
        Field(default=None, min_length=1, max_length=256, description="For a zero-shot model: the labels to try."),
    ]
    template: Annotated[
        str | None,
        Field(
            default=None,
            max_length=1000,
            description="For a zero-shot model: a sentence with {} for a label. For a fill-mask model: a sentence with "
            "{} for the text and {mask}.",
        ),
    ]
    label_words: Annotated[
        dict[LabelName, Annotated[Listed[Word], Field(min_length=1, max_length=256)]] | None,
        Field(default=None, min_length=1, max_length=256, description="For a fill-mask model: words for each label."),
    ]
    multi_label: Annotated[
        bool | None, Field(default=None, description="For a zero-shot model: several labels may be true.")
    ]


class Label(BaseModel):
    label: str
    score: float


class ClassifyResponse(Answered):
    results: list[list[Label]]


class EntitiesRequest(RequestBody):
    example = {"inputs": ["Ada Lovelace lived in London."]}
    inputs: Texts
    model: ModelName
    aggregation: Literal["none", "simple", "first", "average", "max"] = "simple"
    stride: Annotated[
        int | None,
        Field(default=None, ge=1, le=512, description="Reads a long text in windows that overlap by so many tokens."),
    ]


class Entity(BaseModel):
    model_config = ConfigDict(extra="allow")
    score: float
    word: str
    start: int
    end: int


class EntitiesResponse(Answered):
    results: list[list[Entity]]


class AnswerRequest(RequestBody):
    example = {"question": "Where did Ada live?", "context": "Ada Lovelace lived in London."}
    question: str
    context: str
    model: ModelName
    top_k: TopK
    longest: Annotated[int | None, Field(default=None, ge=1, le=512, description="The longest answer, in tokens.")]
    no_answer: Annotated[bool | None, Field(default=None, description="Whether «no answer» is a possible answer.")]


class Span(BaseModel):
    answer: str
    score: float
    start: int
    end: int


class AnswerResponse(Answered):
    answers: list[Span]


class FillRequest(RequestBody):
    example = {"inputs": ["The boat has three [MASK]."]}
    inputs: Annotated[Texts, Field(description="One text or several, with the model's mask token.")]
    model: ModelName
    top_k: TopK
    targets: Annotated[
        Listed[Word] | None,
        Field(default=None, min_length=1, max_length=256, description="Words to choose from; the text has one mask."),
    ]
    template: Annotated[
        str | None, Field(default=None, max_length=1000, description="A sentence with {} for the text and {mask}.")
    ]


class Filling(BaseModel):
    token: int
    token_str: str
    score: float
    sequence: str


class FillResponse(Answered):
    results: Annotated[list[list[list[Filling]]], Field(description="For each text, for each mask, the best tokens.")]


class EncodeRequest(RequestBody):
    """The request of bert-as-service. Like bert-as-service, it ignores unknown fields."""

    model_config = ConfigDict(extra="ignore")
    example = {"id": 1, "texts": ["hello world", "good day ||| good night"], "is_tokenized": False}

    id: Annotated[int | str | None, Field(default=None, description="Returned unchanged.")]
    texts: Annotated[
        Several[str | Listed[str]],
        Field(description="Texts, or lists of tokens with is_tokenized; ` ||| ` separates a pair."),
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
