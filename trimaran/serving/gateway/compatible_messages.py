"""Bodies that the clients of other servers send and read: text-embeddings-inference (TEI), Cohere and Jina.

Like those servers, unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from trimaran.serving.gateway.messages import (
    Answered,
    Label,
    Listed,
    ModelName,
    PromptName,
    RequestBody,
    RerankResponse,
    Several,
    Texts,
    TextsOrIds,
    TopK,
)

RawScores = Annotated[
    bool, Field(default=False, description="Only false: scores are those of the model's own library.")
]


class CompatibleRequest(RequestBody):
    model_config = ConfigDict(extra="ignore")


class EmbedRequest(CompatibleRequest):
    example = {"inputs": ["The harbour was quiet.", "A storm came up."]}
    inputs: TextsOrIds
    model: ModelName
    normalize: Annotated[
        bool, Field(default=True, description="Vectors of unit length; false leaves them as they are.")
    ]
    prompt_name: PromptName
    dimensions: Annotated[int | None, Field(default=None, ge=1, le=65536)]


class EmbedResponse(RootModel[list[list[float]]]):
    """One vector for each text."""


class EmbedSparseRequest(CompatibleRequest):
    example = {"inputs": ["The harbour was quiet."]}
    inputs: Texts
    model: ModelName
    prompt_name: PromptName


class SparseValue(BaseModel):
    index: int
    value: float


class EmbedSparseResponse(RootModel[list[list[SparseValue]]]):
    """For each text the tokens that it weighs, heaviest first."""


class SimilarityInputs(BaseModel):
    source_sentence: str
    sentences: Several[str]


class SimilarityRequest(CompatibleRequest):
    example = {"inputs": {"source_sentence": "The harbour was quiet.", "sentences": ["A calm port.", "A storm."]}}
    inputs: SimilarityInputs
    model: ModelName


class SimilarityResponse(RootModel[list[float]]):
    """The cosine of each sentence with the source sentence."""


TextOrPair = Annotated[Several[str], Field(max_length=2)]


class PredictRequest(CompatibleRequest):
    example = {"inputs": "A fine day on the water."}
    inputs: Annotated[
        str | TextOrPair | Several[TextOrPair],
        Field(description="A text; a text and its pair; or several of either, each in a list of its own."),
    ]
    model: ModelName
    raw_scores: RawScores


class PredictResponse(RootModel[list[Label] | list[list[Label]]]):
    """Labels with scores, best first; a list of such lists for several inputs."""


class TeiRanked(BaseModel):
    index: int
    score: float
    text: str | None = None


class AnyRerankResponse(RootModel[RerankResponse | list[TeiRanked]]):
    """As it was asked: `documents` gives `results`, TEI's `texts` a list."""


class Document(BaseModel):
    """Of its fields, only the text is kept."""

    text: str | None = None


class ServedRerankRequest(CompatibleRequest):
    """Cohere's and Jina's."""

    example = {"query": "What floats?", "documents": ["A stone sinks.", "A boat floats."], "top_n": 1}
    query: str
    documents: Annotated[Several[str | Document], Field(description="Texts, or objects with `text`.")]
    model: ModelName
    top_n: TopK
    return_documents: bool = False


class RankedText(BaseModel):
    text: str


class ServedRanked(BaseModel):
    index: int
    relevance_score: float
    document: RankedText | None = None


class ServedRerankResponse(Answered):
    id: str
    results: list[ServedRanked]
    meta: dict[str, Any]


VectorKind = Literal["float", "int8", "uint8", "binary", "ubinary"]


class ServedEmbedRequest(CompatibleRequest):
    """Cohere's."""

    example = {
        "texts": ["The harbour was quiet.", "A storm came up."],
        "input_type": "search_document",
        "embedding_types": ["float", "ubinary"],
    }
    texts: Several[str]
    model: ModelName
    input_type: Annotated[
        str | None,
        Field(
            default=None,
            max_length=128,
            description="search_query and search_document mean the prompts query and document, others the prompt of "
            "the same name. A model without that prompt reads the texts with its default one.",
        ),
    ]
    embedding_types: Annotated[
        Listed[VectorKind],
        Field(default=["float"], min_length=1, max_length=5, description="All are made of one pass."),
    ]
    output_dimension: Annotated[int | None, Field(default=None, ge=1, le=65536)]
    truncate: Annotated[Literal["END"], Field(default="END", description="Long texts are always cut at their end.")]


class VectorsByKind(BaseModel):
    """Binary vectors have eight dimensions in a byte."""

    model_config = ConfigDict(populate_by_name=True)
    floats: Annotated[list[list[float]] | None, Field(default=None, alias="float")]
    int8: list[list[int]] | None = None
    uint8: list[list[int]] | None = None
    binary: list[list[int]] | None = None
    ubinary: list[list[int]] | None = None


class ServedEmbedResponse(Answered):
    id: str
    response_type: Literal["embeddings_by_type"]
    embeddings: VectorsByKind
    texts: list[str]
    meta: dict[str, Any]


class TokenizeRequest(CompatibleRequest):
    example = {"inputs": ["The harbour was quiet."]}
    inputs: Texts
    model: ModelName
    add_special_tokens: bool = True
    prompt_name: PromptName


class Token(BaseModel):
    id: int
    text: str
    special: bool
    start: int | None = None
    stop: int | None = None


class TokenizeResponse(RootModel[list[list[Token]]]):
    """The tokens of each text, with character offsets."""


class InfoResponse(BaseModel):
    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    models: Annotated[list[str], Field(description="Every model that is served; the other fields are of the first.")]
