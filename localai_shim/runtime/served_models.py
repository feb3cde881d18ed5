"""The models of engines as endpoints see them: prompt templates, markup and compiled grammars, made once for each."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..endpoints.fields import FieldCache
from ..options import LoadOptions, LocalOptions
from ..threads.deadline import Budget
from ..threads.system import Lock
from ..types import EngineError, EngineLike, LoadedModel, ModelLoadError
from .offload import import_modules
from .sources import ModelSource, format_names

if TYPE_CHECKING:
    from ..endpoints.models import Listed
    from ..endpoints.served import ServedModel

_MODULES = ("models.chat_templates", "endpoints.served", "grammar.compile", "output.channels")

log = logging.getLogger("localai_shim")

_served: weakref.WeakKeyDictionary[EngineLike, ServedModel] = weakref.WeakKeyDictionary()
"""Descriptions of each engine's model for the endpoints: clients of one engine share its compiled grammars."""
_lock = Lock()
_described: weakref.WeakKeyDictionary[LoadedModel, ServedModel] = weakref.WeakKeyDictionary()
"""The same, from the thread that loaded the model, before there was an engine to know it by."""


def serve(engine: EngineLike, like: ServedModel | None = None) -> ServedModel:
    """The model of an engine, as endpoints see it: described once.

    Args:
        engine: its model is there.
        like: has all but its name and context length.
    """
    model = engine.model
    with _lock:
        made = _served.get(engine)
        if made is None:
            made = like or _described.get(model) or _describe(model)
            # It may be less than when the model was described: see `Memory.longest`.
            made = replace(made, name=model.name, context_length=model.context_length)
            made = replace(made, settings=model.settings, field_cache=FieldCache())
            made = replace(made, takes_any_token=getattr(model, "takes_any_token", False))
            _served[engine] = made
        elif made.fingerprint != model.fingerprint:  # its weights were updated
            made = _served[engine] = replace(made, fingerprint=model.fingerprint, field_cache=FieldCache())
        return made


def hooks_of(given: LocalOptions) -> Mapping[str, Callable[..., object]]:
    """A client's functions, or methods of its objects, that serve tools that OpenAI hosts, and its MCP servers.

    Raises:
        ValueError: there are no such tools, or they cannot be called.
    """
    hooks, remote = given.get("hosted_tools"), bool(given.get("allow_remote_images"))
    if hooks is None and not remote:
        return {}
    import_modules("endpoints.hosted.hooks", "endpoints.hosted.mcp.servers")
    from ..endpoints.hosted.hooks import read_hooks
    from ..endpoints.hosted.mcp.servers import read_servers

    functions, servers = hooks, None
    if isinstance(hooks, Mapping) and "mcp" in hooks:
        functions, servers = {name: hook for name, hook in hooks.items() if name != "mcp"}, hooks["mcp"]
    made = read_hooks(functions)
    return {**made, "mcp": read_servers(servers or {}, remote=remote)} if servers is not None or remote else made


def is_described(engine: EngineLike) -> bool:
    """True if `Runtime.served` returns at once."""
    return engine in _served


def listed(source: ModelSource, engine: EngineLike | None) -> Listed:
    """Entry of a model for lists, without waiting for it to be loaded.

    Args:
        engine: that runs it; None: it was not asked for yet.
    """
    import_modules("models.loading")
    from ..endpoints.models import Listed
    from ..models.checkpoint.files import context_length, read_json
    from ..models.loading import only_tasks

    config = Path(source.path) / "config.json"
    made = config.parent if config.parent.is_file() else config
    created = int(made.stat().st_mtime) if made.exists() else 0
    if engine is not None and engine.is_ready and not engine.is_closed:
        with contextlib.suppress(EngineError):
            return Listed.of(engine.model, created, source.path)
    length = source.options.get("context_length") or context_length(read_json(config), None)
    return Listed(created, source.path, length, tasks=only_tasks(config.parent))


def describe_loaded(model: LoadedModel, options: LoadOptions) -> None:
    """Describe a model on the thread that has loaded it, and find out how its template takes conversations."""
    served = _described[model] = _describe(model, options)
    if "generate" in model.tasks:
        served.prepare()


def _describe(model: LoadedModel, options: LoadOptions | None = None) -> ServedModel:
    import_modules(*_MODULES)
    from ..endpoints.served import ServedModel
    from ..grammar.compile import GrammarCompiler, Vocabulary
    from ..models.chat_templates import added_tokens, find_formats, grammar_tokens
    from ..output.channels import markers_of
    from ..prompt.template import ChatTokenizer

    budget = Budget()
    markup = find_formats(model.tokenizer, *format_names(options or {}), budget)
    tokenizer = ChatTokenizer(model.text, markup.tools, budget)
    if beyond := [i for i in model.eos_token_ids if i >= tokenizer.vocabulary_size]:
        raise ModelLoadError(
            f"its eos_token_id {beyond[0]} is no token: its tokenizer has {tokenizer.vocabulary_size}. Correct it in "
            "config.json and generation_config.json."
        )
    added = added_tokens(model.tokenizer)
    markers = markers_of(markup)
    marking = {i for i, text in added.items() if any(text in marker for marker in markers)}
    if options is not None and "generate" in model.tasks:  # it was loaded from files
        _end_turns(model, tokenizer.turn_end(model.eos_token_ids, added, marking))
    vocabulary = Vocabulary(
        tokenizer.token_bytes.convert,
        size=tokenizer.vocabulary_size,
        eos_token_ids=model.eos_token_ids,
        added=grammar_tokens(model.tokenizer, tokenizer.special_ids),
        encode=tokenizer.encode_marker,
    )
    return ServedModel(
        name=model.name,
        tokenizer=tokenizer,
        context_length=model.context_length,
        eos_token_ids=model.eos_token_ids,
        fingerprint=model.fingerprint,
        markup=markup,
        grammars=GrammarCompiler(vocabulary),
        generation_defaults=model.generation_defaults,
        request_defaults=getattr(model, "request_defaults", {}),
        hidden_ids=tokenizer.special_ids - marking,
        tasks=model.tasks,
        is_quick=getattr(model.text, "is_quick", False) and tokenizer.is_quick,
    )


def _end_turns(model: LoadedModel, turn_end: int | None) -> None:
    """End answers at the token that the chat template writes behind them, if it is another than files name."""
    if turn_end is None:
        return
    token = model.tokenizer.convert_ids_to_tokens(turn_end)
    text = "'%s': its chat template ends turns with %r, which none of its files names as an end: answers end there"
    log.warning(text, model.name, token)
    model.eos_token_ids |= {turn_end}


def _renew_lock() -> None:
    """Renew the lock in a forked child: a thread of its parent may have held it."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_renew_lock)
