"""The nouns that all layers share. Imports nothing heavy, neither the SDK nor MLX."""

import logging

from .engines import AdapterGoneError as AdapterGoneError
from .engines import BackendMissingError as BackendMissingError
from .engines import EngineClosedError as EngineClosedError
from .engines import EngineError as EngineError
from .engines import EngineLike as EngineLike
from .engines import Event as Event
from .engines import Failure as Failure
from .engines import FinishReason as FinishReason
from .engines import LoadedModel as LoadedModel
from .engines import ModelLoadError as ModelLoadError
from .engines import QueueFullError as QueueFullError
from .engines import Recipient as Recipient
from .engines import RowError as RowError
from .engines import Sink as Sink
from .engines import Ticket as Ticket
from .engines import Token as Token
from .engines import TooManyRowsError as TooManyRowsError
from .engines import Waker as Waker
from .hosted import CodeFile as CodeFile
from .hosted import CodeResult as CodeResult
from .hosted import Hook as Hook
from .hosted import ImageResult as ImageResult
from .hosted import SearchResult as SearchResult
from .values import Json as Json
from .values import NewWeights as NewWeights
from .values import Product as Product
from .values import map_texts as map_texts
from .work import Adapter as Adapter
from .work import AlignmentRequest as AlignmentRequest
from .work import EmbeddingRequest as EmbeddingRequest
from .work import GenerationRequest as GenerationRequest
from .work import GrammarConstraint as GrammarConstraint
from .work import Input as Input
from .work import PieceRequest as PieceRequest
from .work import Prompt as Prompt
from .work import RankingRequest as RankingRequest
from .work import RecognitionRequest as RecognitionRequest
from .work import SamplingParams as SamplingParams
from .work import SpeechRequest as SpeechRequest
from .work import StopChecker as StopChecker
from .work import Task as Task
from .work import TokenScore as TokenScore
from .work import TranscriptionRequest as TranscriptionRequest
from .work import Work as Work
from .work import common_length as common_length

log = logging.getLogger("localai_shim")
VERSION = "0.2.0"
