"""The nouns that all layers share. Imports nothing heavy, neither the SDK nor MLX."""

import logging

from .engines import EngineLike, LoadedModel, Ticket
from .errors import (
    AdapterGoneError,
    BackendMissingError,
    EngineClosedError,
    EngineError,
    ModelLoadError,
    QueueFullError,
    RowError,
    TooManyRowsError,
)
from .events import Event, Failure, FinishReason, Recipient, Sink, Token, Waker
from .hosted import CodeFile, CodeResult, Hook, ImageResult, SearchResult
from .prompts import Adapter, Prompt, TokenScore, common_length
from .values import Json, map_texts
from .weights import NewWeights, Product
from .work import (
    AlignmentRequest,
    EmbeddingRequest,
    GenerationRequest,
    GrammarConstraint,
    Input,
    PieceRequest,
    RankingRequest,
    RecognitionRequest,
    SamplingParams,
    SpeechRequest,
    StopChecker,
    Task,
    TranscriptionRequest,
    Work,
)

__all__ = [
    "VERSION",
    "Adapter",
    "AdapterGoneError",
    "AlignmentRequest",
    "BackendMissingError",
    "CodeFile",
    "CodeResult",
    "EmbeddingRequest",
    "EngineClosedError",
    "EngineError",
    "EngineLike",
    "Event",
    "Failure",
    "FinishReason",
    "GenerationRequest",
    "GrammarConstraint",
    "Hook",
    "ImageResult",
    "Input",
    "Json",
    "LoadedModel",
    "ModelLoadError",
    "NewWeights",
    "PieceRequest",
    "Product",
    "Prompt",
    "QueueFullError",
    "RankingRequest",
    "Recipient",
    "RecognitionRequest",
    "RowError",
    "SamplingParams",
    "SearchResult",
    "Sink",
    "SpeechRequest",
    "StopChecker",
    "Task",
    "Ticket",
    "Token",
    "TokenScore",
    "TooManyRowsError",
    "TranscriptionRequest",
    "Waker",
    "Work",
    "common_length",
    "log",
    "map_texts",
]

log = logging.getLogger("localai_shim")
VERSION = "0.2.0"
