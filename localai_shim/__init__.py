"""Run code written for the OpenAI Python SDK on a local model, inside your process.

from localai_shim import LocalOpenAI

client = LocalOpenAI()  # the bundled model
client = LocalOpenAI(model="mlx-community/Qwen3-8B-4bit")
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client.content import image, input_image
    from .client.local import AsyncLocalOpenAI, LocalOpenAI, async_http_client, http_client
    from .contrib.reranking import rerank
    from .replacing.program import replace_openai
    from .types import BackendMissingError
    from .types.hosted import (
        CodeFile,
        CodeInterpreterHook,
        CodeResult,
        ImageGenerationHook,
        ImageResult,
        SearchResult,
        WebSearchHook,
    )

    __version__: str

__all__ = [
    "AsyncLocalOpenAI",
    "BackendMissingError",
    "CodeFile",
    "CodeInterpreterHook",
    "CodeResult",
    "ImageGenerationHook",
    "ImageResult",
    "LocalOpenAI",
    "SearchResult",
    "WebSearchHook",
    "async_http_client",
    "http_client",
    "image",
    "input_image",
    "replace_openai",
    "rerank",
]
_ELSEWHERE = {
    "image": "client.content",
    "input_image": "client.content",
    "BackendMissingError": "types",
    "replace_openai": "replacing.program",
    "rerank": "contrib.reranking",
    **dict.fromkeys(("CodeFile", "CodeInterpreterHook", "CodeResult", "ImageGenerationHook"), "types.hosted"),
    **dict.fromkeys(("ImageResult", "SearchResult", "WebSearchHook"), "types.hosted"),
}


class _BlasFirst:
    """Import hook that loads a fast BLAS before MLX is imported, which keeps the one that it finds then."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "mlx.core" and self in sys.meta_path:
            sys.meta_path.remove(self)
            from .backends.blas import load_blas

            load_blas()


if sys.platform == "linux" and "mlx.core" not in sys.modules:
    sys.meta_path.insert(0, _BlasFirst())


def __getattr__(name: str) -> object:
    """Import a name when it is asked for: pytest imports this package in every suite, and the SDK takes a second."""
    if name == "__version__":
        return import_module(".types", __name__).VERSION
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{_ELSEWHERE.get(name, 'client.local')}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
