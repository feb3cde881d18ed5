"""Chat templates whose loops and calls end when nobody waits for the prompt any more, and which may append to lists.

Templates come with checkpoints. The sandbox that transformers runs them in bounds a range to 100,000 numbers, which two
loops, one in the other, make ten thousand million. It refuses what changes a list, which Kimi K2's template does to one
of its own; here a template may change lists, which are its own or its conversation's.
"""

from __future__ import annotations

import inspect
import logging
import re
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..threads.deadline import check
from ..types import Json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger("localai_shim")
_FILTER = "localai_shim_checked"
_OURS = "{#+ localai_shim #}"
_LAST_NEWLINE = re.compile(r"(\r\n|\r|\n)\Z")
"""Jinja leaves it out."""
_CHANGES = ("append", "extend", "insert", "pop")
_lock = threading.Lock()


def _checked(_: object, items: Iterable[object]) -> Iterator[object]:
    """Items of a loop; each turn looks at the deadline."""
    for item in items:
        check()
        yield item


def limited_template(tokenizer: PreTrainedTokenizerBase, tools: list[Json] | None) -> Json:
    """A tokenizer's template as the argument of `apply_chat_template`, with loops and calls that look at the deadline.

    transformers keeps what it compiles, by source. This one ends in a comment, which renders to nothing: whoever else
    has a checkpoint with the same template gets the one that transformers makes of it.

    Returns:
        Nothing, where a tokenizer has no such template or renders it in a way of its own.
    """
    from transformers.utils import chat_template_utils

    try:
        if "chat_template" not in inspect.signature(tokenizer.apply_chat_template).parameters:
            return {}
        source = _LAST_NEWLINE.sub("", tokenizer.get_chat_template(tools=tools)) + _OURS
        compiled = chat_template_utils._compile_jinja_template(source)
        if _FILTER not in compiled.environment.filters:
            with _lock:
                _rework(compiled, source)
        return {"chat_template": source}
    except Exception:  # it does not compile, which rendering it says; or transformers has changed
        log.debug("a chat template's loops could not be limited in time", exc_info=True)
        return {}


def _rework(compiled: Any, source: str) -> None:
    """Compile a template anew, with its loops over what looks at the deadline; it has an environment of its own."""
    import jinja2
    from jinja2 import nodes

    environment = compiled.environment
    if _FILTER in environment.filters:
        return
    tree = environment.parse(source)
    for loop in [*tree.find_all(nodes.For)]:
        loop.iter = nodes.Filter(loop.iter, _FILTER, [], [], None, None, lineno=loop.iter.lineno)
        loop.iter.set_environment(environment)
    call = environment.call

    def checked_call(*args: Any, **kwargs: Any) -> Any:
        check()
        return call(*args, **kwargs)

    _allow_lists(environment)
    # A filter that gets the context is not run by the compiler, over loops' constants.
    environment.filters[_FILTER] = jinja2.pass_context(_checked)
    made = environment.template_class.from_code(environment, environment.compile(tree), compiled.globals)
    environment.call = checked_call
    compiled.root_render_func, compiled.blocks = made.root_render_func, made.blocks


def _allow_lists(environment: Any) -> None:
    """Let a template change lists, and write what a filter gives piece by piece as JSON."""
    is_safe, to_json = environment.is_safe_attribute, environment.filters["tojson"]

    def is_safe_attribute(obj: Any, attribute: str, value: Any) -> bool:
        return (type(obj) is list and attribute in _CHANGES) or bool(is_safe(obj, attribute, value))

    def listed_to_json(value: Any, *args: Any, **kwargs: Any) -> Any:
        return to_json(list(value) if isinstance(value, Generator) else value, *args, **kwargs)

    environment.is_safe_attribute = is_safe_attribute
    environment.filters["tojson"] = listed_to_json
