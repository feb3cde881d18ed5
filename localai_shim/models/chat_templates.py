"""Chat templates: limits of what they compute, and the formats that they and the vocabulary show.

Templates come with checkpoints. Their loops and calls end when the prompt is no longer needed. The sandbox that
transformers runs them in bounds a range to 100,000 numbers, which two loops, one in the other, make ten thousand
million. It refuses what changes a list, which Kimi K2's template does to its own list; here a template may change
lists, which are its own or its conversation's.

No operation takes gigabytes, or minutes that nothing interrupts.
"""

from __future__ import annotations

import functools
import inspect
import logging
import operator
import re
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.markup import Detected, Evidence, detect
from ..threads.deadline import Budget, check
from ..threads.system import Lock
from ..types import Json
from .checkpoint.files import read_json

if TYPE_CHECKING:
    import jinja2
    from jinja2 import nodes
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger("localai_shim")

MAX_CHARACTERS = 1 << 26  # of a text: ten times what fills a context of a million tokens
MAX_WIDTH = 100_000  # that a text may be padded or indented by, as of a range of the sandbox
MAX_BITS = 4096  # of an integer
_WIDE = re.compile(r"\d{6,}")
_PADDED = ("batch", "center", "format", "indent", "slice", "tojson", "truncate", "wordwrap")
"""Filters whose arguments are widths."""


def operate(_: object, sign: str, left: object, right: object) -> object:
    """Result of one of `OPERATORS`.

    Raises:
        ValueError: it would be too large.
    """
    sizes = [len(each) for each in (left, right) if isinstance(each, str | list | tuple)]
    if sign == "%" and isinstance(left, str):
        _check_format(left, right if isinstance(right, tuple) else (right,))
    elif sign == "*" and sizes:
        times = right if isinstance(right, int) else left
        _check_size(sizes[0] * times if isinstance(times, int) else 0)
    elif sign == "+":
        _check_size(sum(sizes))
    elif sign in ("*", "**") and isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if (bits * max(right, 1) if sign == "**" else bits + right.bit_length()) > MAX_BITS:
            raise ValueError("a number of this template is too large")
    return _SIGNS[sign](left, right)


_SIGNS: dict[str, Callable[[object, object], object]] = {
    "+": operator.add,
    "*": operator.mul,
    "**": operator.pow,
    "%": operator.mod,
}
OPERATORS = frozenset(_SIGNS)


def join(texts: Iterable[str]) -> str:
    """A text of its pieces, as they come."""
    found, size = [], 0
    for text in texts:
        size += len(text)
        _check_size(size)
        found.append(text)
    return "".join(found)


def check_call(function: object, arguments: Sequence[object], named: Mapping[str, object]) -> None:
    """Refuse a call of a text's method that makes too large a text."""
    function = getattr(function, "__wrapped__", function)  # the sandbox's, of `format`
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, str):
        return
    name, given = getattr(function, "__name__", ""), [*arguments, *named.values()]
    if name in ("format", "format_map"):
        _check_format(owner, given)
    elif name == "replace":
        _check_replaced(owner, *arguments[:2])
    elif name == "join" and arguments and isinstance(arguments[0], list | tuple):
        _check_joined(arguments[0], owner)
    elif name not in ("split", "rsplit", "startswith", "endswith", "find", "rfind", "count", "index"):
        _check_widths(given)


def bounded(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """A filter that refuses what would make too large a text."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def checked(*arguments: object, **named: object) -> object:
        value, *others = arguments[first:] or (None,)
        if name in _PADDED:
            _check_widths([*others, *named.values()])
        if name == "format":
            _check_format(value, others)
        elif name == "replace":
            _check_replaced(value, *others[:2])
        elif name == "join" and isinstance(value, list | tuple):
            _check_joined(value, *others[:1])
        return function(*arguments, **named)

    return checked


def _check_size(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise ValueError(f"this template makes more than {MAX_CHARACTERS:,} characters")


def _check_widths(given: Iterable[object]) -> None:
    if any(isinstance(each, int) and each > MAX_WIDTH for each in given):
        raise ValueError(f"this template pads a text by more than {MAX_WIDTH:,} characters")


def _check_format(text: object, given: Iterable[object]) -> None:
    if isinstance(text, str) and _WIDE.search(text):
        raise ValueError("this template formats a text with too large a width")
    if isinstance(text, str) and ("*" in text or "{" in text):  # arguments may give widths
        _check_widths(given)


def _check_replaced(text: object, old: object = "", new: object = "") -> None:
    if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
        _check_size(text.count(old) * len(new))


def _check_joined(items: Sequence[object], between: object = "") -> None:
    _check_size(sum(len(item) for item in items if isinstance(item, str)))
    _check_size(len(items) * len(between) if isinstance(between, str) else 0)


_FILTER = "localai_shim_checked"
_CONCATENATED = "localai_shim_concatenated"
_DONE = "localai_shim_limited"
_LAST_NEWLINE = re.compile(r"(\r\n|\r|\n)\Z")
"""Jinja leaves it out."""
_CHANGES = ("append", "extend", "insert", "pop")
_lock = Lock()


def _checked(_: object, items: Iterable[object]) -> Iterator[object]:
    """Items of a loop; each turn looks at the deadline."""
    for item in items:
        check()
        yield item


def limited_template(tokenizer: PreTrainedTokenizerBase, tools: list[Json] | None) -> Json:
    """A tokenizer's template as the argument of `apply_chat_template`, with loops and calls that look at the deadline.

    transformers keeps what it compiles, by source, and computes what is constant as it compiles. So it gets one that
    has the template as a text, and what it makes of that is replaced: another user of a checkpoint with the same
    template gets the one that transformers makes of it.

    Returns:
        Nothing, where a tokenizer has no such template or renders it in its own way.
    """
    from transformers.utils import chat_template_utils

    try:
        if "chat_template" not in inspect.signature(tokenizer.apply_chat_template).parameters:
            return {}
        source = tokenizer.get_chat_template(tools=tools)
        stand_in = _stand_in(source)
        compiled = chat_template_utils._compile_jinja_template(stand_in)
        if not hasattr(compiled, _DONE):
            with _lock:
                _rework(compiled, _LAST_NEWLINE.sub("", source))
        return {"chat_template": stand_in}
    except Exception:  # it does not compile, which rendering it says; or transformers has changed
        log.debug("a chat template's loops could not be limited in time", exc_info=True)
        return {}


@functools.lru_cache(maxsize=256)
def _stand_in(source: str) -> str:
    """A template that stands for one with this source, until it is replaced; transformers looks for names in it."""
    quoted = source.replace("\\", "\\\\").replace("'", "\\'")
    return f"{{% set source = '{quoted}' %}}{{{{ raise_exception('localai_shim: the chat template was dropped') }}}}"


def _rework(compiled: jinja2.Template, source: str) -> None:
    """Replace the contents of a compiled template, which has its own environment, by the source's, with limits."""
    import jinja2
    from jinja2 import nodes

    environment = compiled.environment
    if hasattr(compiled, _DONE):
        return
    tree = environment.parse(source)
    for loop in [*tree.find_all(nodes.For)]:
        loop.iter = _filtered(loop.iter, _FILTER, environment)
    _bound(environment, tree)
    _allow_lists(environment)
    # A filter that gets the context is not run by the compiler, over loops' constants.
    environment.filters[_FILTER] = jinja2.pass_context(_checked)
    made = environment.template_class.from_code(environment, environment.compile(tree), compiled.globals)
    compiled.root_render_func, compiled.blocks = made.root_render_func, made.blocks
    setattr(compiled, _DONE, True)


def _filtered(node: nodes.Node, name: str, environment: jinja2.Environment) -> nodes.Filter:
    """An expression, through a filter."""
    from jinja2 import nodes

    made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    made.set_environment(environment)
    return made


def _bound(environment: Any, tree: nodes.Template) -> None:
    """Make calls look at the deadline, and operations refuse too large results; nothing is computed before."""
    from jinja2 import nodes

    call = environment.call

    def checked_call(self: object, function: object, *args: object, **kwargs: object) -> object:
        check()
        check_call(function, args, kwargs)
        return call(self, function, *args, **kwargs)

    environment.call, environment.concat = checked_call, join
    environment.call_binop, environment.intercepted_binops = operate, OPERATORS
    environment.optimized, environment.code_generator_class = False, _computing_nothing()
    environment.globals.pop("lipsum", None)
    for name, function in environment.filters.items():
        environment.filters[name] = bounded(name, function)
    environment.filters[_CONCATENATED] = lambda values: join(map(str, values))
    for holder in [*tree.find_all(nodes.Node)]:
        for field, value in [*holder.iter_fields()]:
            if isinstance(value, nodes.Concat):
                setattr(holder, field, _concatenated(value, environment))
            elif isinstance(value, list):
                value[:] = [_concatenated(v, environment) if isinstance(v, nodes.Concat) else v for v in value]


def _concatenated(node: nodes.Concat, environment: jinja2.Environment) -> nodes.Filter:
    """Texts with `~` between them, through a filter."""
    from jinja2 import nodes

    listed = nodes.List(node.nodes, lineno=node.lineno)
    listed.set_environment(environment)
    return _filtered(listed, _CONCATENATED, environment)


@functools.cache
def _computing_nothing() -> type:
    """A compiler that leaves constant expressions to rendering, which has a limit."""
    from jinja2 import compiler, nodes

    class Generator(compiler.CodeGenerator):
        def _output_child_to_const(
            self, node: nodes.Expr, frame: compiler.Frame, finalize: compiler.CodeGenerator._FinalizeInfo
        ) -> str:
            if not isinstance(node, nodes.TemplateData | nodes.Const):
                raise nodes.Impossible
            return super()._output_child_to_const(node, frame, finalize)

    return Generator


def _allow_lists(environment: Any) -> None:
    """Let a template change lists, and write what a filter gives piece by piece as JSON."""
    is_safe, to_json = environment.is_safe_attribute, environment.filters["tojson"]

    def is_safe_attribute(obj: object, attribute: str, value: object) -> bool:
        return (type(obj) is list and attribute in _CHANGES) or bool(is_safe(obj, attribute, value))

    def listed_to_json(value: object, *args: object, **kwargs: object) -> object:
        return to_json(list(value) if isinstance(value, Generator) else value, *args, **kwargs)

    environment.is_safe_attribute = is_safe_attribute
    environment.filters["tojson"] = listed_to_json


# -- formats ---------------------------------------------------------------------------------------------------------


MAX_PROMPT_CHARACTERS = 100_000  # in which markers are looked for: many times what templates write of one tool
SAMPLE_QUESTION = "What is the weather in Paris?"
SAMPLE_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name."}},
            "required": ["city"],
        },
    },
}


def find_formats(
    tokenizer: TokenizerWrapper,
    tool_format: str | None = None,
    reasoning_format: str | None = None,
    budget: Budget | None = None,
) -> Detected:
    """Formats of a model's calls and reasoning, and why they are known.

    Args:
        tokenizer: mlx-lm's `TokenizerWrapper`.
        tool_format, reasoning_format: names that the caller gave; None: they are found out.
        budget: of a prompt that is rendered for that; None: its own one.
    """
    parser = (getattr(tokenizer, "init_kwargs", None) or {}).get("tool_parser_type")
    start, end = (getattr(tokenizer, name, None) for name in ("think_start", "think_end"))
    evidence = Evidence(
        template=_template_text(tokenizer),
        tokens=frozenset(added_tokens(tokenizer).values()),
        parser=parser if isinstance(parser, str) else None,
        think=(start, end) if start and end else None,
        render=partial(_prompt, tokenizer, budget or Budget()),
    )
    tool_format = tool_format or getattr(tokenizer, "tool_format", None)  # a scripted model says it itself
    return detect(evidence, tool_format, reasoning_format)


def _template_text(tokenizer: TokenizerWrapper) -> str:
    """The source of the chat templates; empty for a program, which mlx-lm's wrapper prefers to the checkpoint's."""
    if getattr(tokenizer, "_chat_template", None) is not None:
        return ""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        return "\n".join(map(str, template.values()))
    return str(template or "")


def _prompt(tokenizer: TokenizerWrapper, budget: Budget) -> str:
    """A question and a tool, as the chat template writes them; "" where it refuses that, or takes too long."""
    if not tokenizer.has_chat_template:
        return ""
    limited: Json = {}
    if getattr(tokenizer, "_chat_template", None) is None and (inner := getattr(tokenizer, "_tokenizer", None)):
        limited = limited_template(inner, [SAMPLE_TOOL])
    return budget.find("what it makes of tools", partial(_sample, tokenizer, limited), str)


def _sample(tokenizer: TokenizerWrapper, limited: Json) -> str:
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": SAMPLE_QUESTION}]
    for start in (0, 1):  # mlx-lm's programs list tools in the system message, which others refuse
        check()
        try:
            text: str = tokenizer.apply_chat_template(
                messages[start:], tools=[SAMPLE_TOOL], tokenize=False, add_generation_prompt=True, **limited
            )
            return text[:MAX_PROMPT_CHARACTERS]
        except Exception:  # templates raise what they like
            continue
    return ""


def added_tokens(tokenizer: TokenizerWrapper) -> dict[int, str]:
    """Tokens that were added to the trained vocabulary, markers and ends of sequence among them, by id."""
    return {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}


def grammar_tokens(tokenizer: TokenizerWrapper, special: Container[int]) -> dict[int, str]:
    """Of the `added_tokens` those that a grammar names, and that its free text never holds, by id.

    Words, letters and runs of spaces were added as text; `special` are those that are flagged.
    """
    added = added_tokens(tokenizer)
    return {i: text for i, text in added.items() if i in special or text[:1] in ("<", "[")}


def read_formats(folder: Path) -> Detected | None:
    """Formats of a model by its files alone; None if it has no chat template."""
    config = read_json(folder / "tokenizer_config.json")
    templates = [
        path.read_text(encoding="utf-8", errors="replace") for path in folder.glob("*.jinja") if path.is_file()
    ]
    given = config.get("chat_template")
    if isinstance(given, list):
        templates += [str(entry.get("template")) for entry in given if isinstance(entry, dict)]
    elif isinstance(given, str):
        templates.append(given)
    if not templates:
        return None
    decoder = config.get("added_tokens_decoder")
    added = [*decoder.values()] if decoder else read_json(folder / "tokenizer.json").get("added_tokens") or []
    tokens = frozenset(str(token.get("content")) for token in added if isinstance(token, dict))
    parser = config.get("tool_parser_type")
    return detect(Evidence("\n".join(templates), tokens, parser if isinstance(parser, str) else None))
