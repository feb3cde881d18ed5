"""Run Python code written for the OpenAI SDK against a local MLX model, inside the same process.

from localai_shim import LocalOpenAI

client = LocalOpenAI()  # the small checkpoint that ships with the package
client = LocalOpenAI(model="mlx-community/Qwen3-8B-4bit")
"""

from .client import AsyncLocalOpenAI, LocalOpenAI, async_http_client, http_client
from .content import image, input_image
from .types import VERSION, BackendMissingError

__all__ = [
    "AsyncLocalOpenAI",
    "BackendMissingError",
    "LocalOpenAI",
    "async_http_client",
    "http_client",
    "image",
    "input_image",
]
__version__ = VERSION
