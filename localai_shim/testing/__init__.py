"""Test doubles for code that calls a model: an engine that plays scripted replies, under the real clients.

from localai_shim import LocalOpenAI
from localai_shim.testing import ScriptedEngine

with ScriptedEngine(["Hello!"]) as engine, LocalOpenAI(engine=engine) as client:
    assert client.responses.create(model="any", input="Hi").output_text == "Hello!"

Importing this needs neither MLX nor mlx-lm nor transformers nor NumPy.
"""

from .engine import ScriptedEngine
from .replies import Decide, Reply, ReplyLike
from .tokenizer import Piece, ScriptedTokenizer

__all__ = ["Decide", "Piece", "Reply", "ReplyLike", "ScriptedEngine", "ScriptedTokenizer"]
