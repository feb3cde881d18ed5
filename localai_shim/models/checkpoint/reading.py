"""Errors of upstream's code while it reads a checkpoint, as errors that say which files they are about."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from ...backends.machine import is_out_of_memory
from ...types import Json, ModelLoadError
from .quantization import quantization_error

MAX_SHOWN = 500  # characters of what upstream says: some of it lists all tensors
_CONFIG = re.compile(r"transformers\.(models\..*\.configuration_\w+|configuration_utils)")
_TOKENIZER = "mlx_lm.tokenizer_utils"


@contextlib.contextmanager
def naming_files(config: Json) -> Iterator[None]:
    """Say which files upstream's code could not read, if it raises its own error.

    Raises:
        ModelLoadError: names the files, and the quantization if that is the reason.
    """
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or isinstance(error, OSError | ImportError):
            raise
        modules = _modules(error)
        if any(_CONFIG.fullmatch(name) for name in modules):
            what = (
                f"config.json has values that transformers refuses ({shown(error)}). Copy config.json again from where "
                "the weights come from, or correct it."
            )
        elif _TOKENIZER in modules:
            what = f"its tokenizer (tokenizer.json, tokenizer_config.json) cannot be read ({shown(error)})."
        else:
            what = quantization_error(config, str(error), shown(error)) or (
                f"config.json and the weights make no model ({shown(error)})."
            )
        raise ModelLoadError(what) from error


def shown(error: Exception) -> str:
    """An error's type and text, which may be as long as a list of all tensors."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + ' ...'}"


def _modules(error: Exception) -> set[str]:
    """Names of the modules whose code an error went through."""
    found, trace = set(), error.__traceback__
    while trace is not None:
        found.add(str(trace.tb_frame.f_globals.get("__name__")))
        trace = trace.tb_next
    return found
