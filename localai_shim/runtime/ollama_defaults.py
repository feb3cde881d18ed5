"""Ollama's defaults of a model: what they mean for requests that leave a field out."""

from __future__ import annotations

import logging

from ..models.chat_templates import added_tokens
from ..models.checkpoint.generation_config import usable_settings
from ..models.text import TextModel
from ..options import LoadOptions
from ..types import Json

log = logging.getLogger("localai_shim")

CONTEXT = "num_ctx"
MAX_STOPS = 64  # strings: some models have more than requests may
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "num_predict": "max_new_tokens",
}
"""Ollama's names of settings -> those of a generation_config.json."""
_PENALTIES = ("presence_penalty", "frequency_penalty")
_RUNNER = ("num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "low_vram", "num_keep", "numa")
"""Settings of Ollama's own runner, which change no answer."""


def apply_defaults(model: TextModel, given: Json, options: LoadOptions) -> None:
    """Give a model Ollama's defaults, which count behind a request's fields and before other defaults.

    Args:
        model: it is loaded, and no request has seen it.
        given: parameters, and the system prompt as `system`.
        options: a `context_length` in it counts before `num_ctx`.
    """
    rest = dict(given)
    unlimited = rest.get("num_predict")
    if isinstance(unlimited, int) and unlimited < 0:  # as Ollama writes that there is no limit
        rest.pop("num_predict")
    sampling = {ours: rest.pop(name) for name, ours in _SAMPLING.items() if name in rest}
    model.generation_defaults = {**model.generation_defaults, **usable_settings(sampling, model.name)}
    length = rest.pop(CONTEXT, None)
    if _is_number(length, 1) and options.get("context_length") is None:
        model.context_length = min(int(length), model.context_length or int(length))
    made = _read_others(rest, model.name)
    if stops := made.get("stop"):  # text that is one token costs less as that token
        tokens = {text: i for i, text in added_tokens(model.tokenizer).items()}
        made["stop_token_ids"] = frozenset(tokens[text] for text in stops if text in tokens)
        made["stop"] = [text for text in stops if text not in tokens]
    model.request_defaults = made
    if unused := sorted(rest.keys() - set(_RUNNER)):
        log.warning("'%s': these parameters of Ollama have no effect here: %s", model.name, ", ".join(unused))


def _read_others(rest: Json, name: str) -> Json:
    """Take out the defaults that no generation_config.json has."""
    made: Json = {}
    system, stop, seed = rest.pop("system", None), rest.pop("stop", None), rest.pop("seed", None)
    if isinstance(system, str) and system:
        made["system"] = system
    if isinstance(stop, str):
        stop = [stop]
    if isinstance(stop, list) and all(isinstance(text, str) for text in stop):
        made["stop"] = [text for text in stop if text][:MAX_STOPS]
    elif stop is not None:
        log.warning("'%s': Ollama's parameter stop is %.100r, and no list of strings; it has no effect", name, stop)
    if _is_number(seed, 0):
        made["seed"] = int(seed)
    for key in _PENALTIES:
        value = rest.pop(key, None)
        if _is_number(value, -2, 2):
            made[key] = float(value)
        elif value is not None:
            log.warning("'%s': Ollama's parameter %s is %.100r, and no number from -2 to 2", name, key, value)
    return made


def _is_number(value: object, least: float, most: float = 2**31) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
