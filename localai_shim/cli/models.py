"""List the models on this machine: the bundled ones, and those of LM Studio, the Hub's cache, Ollama, and others.

With a model: its formats of tool calls and reasoning, what its chat template shows, and a prompt.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import Search, search_options
from ..stats import show_bytes
from ..threads.deadline import Budget
from ..types import Json
from .shared import make_console, one_line, print_table, write

if TYPE_CHECKING:
    from rich.console import Console

    from ..prompt.fit.trials import Fitting
    from ..prompt.template import ChatTokenizer
    from .listing import LocalModel

RUNNING_SHARE = 1.1  # of its weights' bytes, which a model takes at least while it runs
TOO_SLOW = "it is too slow to test, so conversations are rendered unchanged"
NO_TEMPLATE = "it has no chat template: it completes text, without conversations or tools"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="folder, GGUF file, Hub ID, name of a model on this machine, or builtin:vision; shows its chat template",
    )
    parser.add_argument("--json", action="store_true", help="list the models as JSON")
    parser.add_argument("--no-local-models", action="store_true", help="only the bundled models and the Hub's cache")
    parser.add_argument("--offline", action="store_true", help="never ask the Hugging Face Hub")
    parser.add_argument("--revision", metavar="NAME", help="branch, tag, or commit on the Hugging Face Hub")
    parser.add_argument("--tool-format", metavar="NAME", help="use this format instead of the detected one")
    parser.add_argument("--reasoning-format", metavar="NAME", help="use this format instead of the detected one")
    parser.add_argument("--trust-remote-code", action="store_true", help="run Python code from the model's folder")


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or what is known of one model."""
    console = make_console()
    search = search_options(
        {"local_models": False if arguments.no_local_models else None, "offline": arguments.offline or None}
    )
    if arguments.model is None:
        found = find_models(search)
        if arguments.json:
            write(console, f"{json.dumps(to_json(found), indent=2)}\n")
        else:
            print_models(console, found)
        return 0
    for subject, text in _describe(arguments, search):
        write(console, f"{subject:11}", "bold")
        write(console, f"{text}\n")
    return 0


def find_models(search: Search | None = None) -> list[LocalModel]:
    """Those that can be had without a network."""
    from ..runtime.sources import BUILTIN_NAMES
    from .listing import describe_folder, local_models

    own = [describe_folder(name, path) for path, name in BUILTIN_NAMES.items()]
    return own + local_models(hub_only=not (search or search_options({})).local)


def print_models(console: Console, found: list[LocalModel]) -> None:
    """Print a table of models, with whether each runs in the memory that MLX may use."""
    limit = _memory()
    rows = [
        (
            model.name,
            model.program,
            show_bytes(model.bytes),
            model.format,
            model.kind,
            model.calls,
            model.reasoning,
            _runs(model, limit),
        )
        for model in found
    ]
    print_table(console, ("model", "from", ">size", "format", "architecture", "calls", "reasoning", "runs"), rows)


def to_json(found: list[LocalModel]) -> list[Json]:
    """The same as values of JSON."""
    limit = _memory()
    made = []
    for model in found:
        problem = _problem(model, limit)
        made.append({**dataclasses.asdict(model), "runs": not problem, "batched": not problem and model.batched})
        made[-1]["problem"] = problem or None
    return made


def _memory() -> int:
    """Bytes that MLX may use."""
    from ..backends.machine import require_backend

    require_backend()
    from ..engine.memory import default_limit
    from ..runtime.host import connect

    connect()
    return default_limit()


def _runs(model: LocalModel, limit: int) -> str:
    if problem := _problem(model, limit):
        return f"no: {problem}"
    return "batched" if model.batched else "one request at a time"


def _problem(model: LocalModel, limit: int) -> str:
    fits = RUNNING_SHARE * model.bytes <= limit
    return one_line(model.problem) or ("" if fits else f"MLX may use {show_bytes(limit)}")


def _describe(arguments: argparse.Namespace, search: Search) -> Iterator[tuple[str, str]]:
    """Findings in a model's tokenizer and chat template, with their reasons: subjects and texts.

    Raises:
        ModelLoadError: there is no such model.
        ValueError: there is no such format.
    """
    from ..backends.machine import require_backend
    from ..models.hub import fetch
    from ..runtime.sources import make_sources

    require_backend()
    revision: str | None = arguments.revision
    path = make_sources({"": arguments.model}, {} if revision is None else {"revision": revision}, None, search)[
        ""
    ].path
    folder = fetch(path, None, revision, search)
    from ..models.chat_templates import SAMPLE_QUESTION, SAMPLE_TOOL, find_formats
    from ..models.text import load_text_tokenizer
    from ..prompt.template import ChatTokenizer, Conversation

    loaded = load_text_tokenizer(folder, trusts=arguments.trust_remote_code)
    budget = Budget()
    found = find_formats(loaded.tokenizer, arguments.tool_format, arguments.reasoning_format, budget)
    tokenizer = ChatTokenizer(loaded, found.tools, budget)
    yield "model", path if Path(path).is_file() else str(folder)
    yield "calls", f"{found.tools.name if found.tools else 'none'}: {found.tools_why}"
    yield "reasoning", f"{found.reasoning}: {found.thought_why}"
    if not loaded.tokenizer.has_chat_template:
        yield "template", NO_TEMPLATE
        return
    yield "thinking", _switch(tokenizer, thinks=found.thinks)
    form = _shown(tokenizer.fitting)
    if budget.is_over:
        yield "template", TOO_SLOW
        return
    yield "template", form
    question = Conversation([{"role": "user", "content": SAMPLE_QUESTION}], tools=[SAMPLE_TOOL])
    yield "prompt", f"with a tool:\n{tokenizer.decode(tokenizer.render(question))}"


def _switch(tokenizer: ChatTokenizer, *, thinks: bool) -> str:
    """Switches of the reasoning."""
    from ..prompt.template_traits import EFFORT_VARIABLES

    switch = tokenizer.thinking_switch
    if switch is None and not thinks:
        return "none"
    if switch is None:
        text = "the template has no switch, a budget of tokens turns it off"
    else:
        both = [*(switch.words or ()), *(f"{name}={on!r} or {switch.off[name]!r}" for name, on in switch.on.items())]
        text = f"turned on and off by {' or '.join(both)}"
    efforts = [name for name in EFFORT_VARIABLES if any(tokenizer.takes(name, effort) for effort in ("low", "high"))]
    return f"{text}; its effort by {efforts[0]}" if efforts else text


def _shown(fitting: Fitting) -> str:
    """Parts that the template shows, and changes that are made for it."""
    form = fitting.with_tools or fitting.without_tools
    shows = {"tools": fitting.with_tools is not None, "calls": form.calls, "results": form.results != "user"}
    changed = [
        f"{field.name}={getattr(form, field.name)!r}"
        for field in dataclasses.fields(form)
        if field.name != "developer" and getattr(form, field.name) != field.default
    ]
    lacking = [name for name, shown in shows.items() if not shown]
    text = f"shows {_listed([name for name, shown in shows.items() if shown])}"
    if lacking:
        text += f"; {_listed(lacking)} are written as text"
    return f"{text}; its form: {', '.join(changed) or 'as OpenAI has it'}"


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "neither tools, calls nor results"
