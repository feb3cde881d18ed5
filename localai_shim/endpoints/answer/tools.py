"""The tools of a request: what the model sees of them, what it may call, and the grammar that holds it to that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ...errors import BadRequest
from ...grammar import GrammarError
from ...grammar.tools import SUPPORTED, ToolSpec, tool_grammar
from ...output.tool_calls import OfferedTools
from ...prompt.tools import Tool, ToolChoice, read_function_call, read_functions, read_tool_choice, read_tools
from ..fields import Fields
from ..request_fields import ServedModel

Mode = Literal["auto", "required"]


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """What follows from the tool fields of a request.

    Attributes:
        rendered: the tools as the chat template reads them; None: it gets none.
        offered: what the model may call.
        barred: it may call nothing, although it is shown tools.
        legacy: the caller uses `functions`, and gets a `function_call`.
        forced: the answer has to be a call.
        held: the calls need a grammar.
        grammar: makes the grammar of an answer that is calls only ("required"), or may have some ("auto"); None: there
            is none for this model's format.
    """

    rendered: list[dict[str, Any]] | None = None
    offered: OfferedTools = field(default_factory=OfferedTools)
    barred: bool = False
    legacy: bool = False
    forced: bool = False
    held: bool = False
    grammar: Callable[[Mode], str] | None = None


def read_tool_plan(fields: Fields, model: ServedModel) -> ToolPlan:
    """`tools`, `tool_choice`, `parallel_tool_calls`, and the deprecated `functions` and `function_call`.

    Raises:
        BadRequest: with the path of what is wrong, or of what this model has no way to honour.
    """
    legacy = fields.has("functions")
    if legacy and fields.has("tools"):
        raise BadRequest("Pass 'tools' or the deprecated 'functions', not both.", param="functions")
    tools = read_functions(fields.get("functions")) if legacy else read_tools(fields.get("tools"))
    if legacy or fields.has("function_call"):
        choice = read_function_call(fields.get("function_call"), tools if legacy else [])
    else:
        choice = read_tool_choice(fields.get("tool_choice"), tools)
    parallel = fields.boolean("parallel_tool_calls")
    if parallel is not None and not tools:
        raise BadRequest(
            "Invalid value for 'parallel_tool_calls': it is only allowed when 'tools' are specified.",
            param="parallel_tool_calls",
        )
    if not tools:
        return ToolPlan(legacy=legacy)
    rendered = [tool.template() for tool in tools]
    if choice.mode == "none":  # the prompt is the same as with "auto", and so in the prefix cache
        shown = model.markup.tools is not None and model.tokenizer.knows("tools")
        return ToolPlan(rendered=rendered if shown else None, barred=shown, legacy=legacy)
    source = "functions" if legacy else "tools"
    if model.markup.tools is None:
        raise BadRequest(
            f"This model's tool-call format is not known: '{source}' does not work with it.",
            param=source,
            code="unsupported_value",
        )
    allowed = [tool for tool in tools if choice.names is None or tool.name in choice.names]
    offered = OfferedTools(
        functions=[tool.template() for tool in allowed],
        custom=frozenset(tool.name for tool in allowed if tool.custom is not None),
    )
    cause = _why_grammar(tools, allowed, choice, parallel)
    name = _grammar_name(model)
    if cause is not None and name is None:
        param, what = cause
        raise BadRequest(
            f"'{param}' asks for {what}, which cannot be guaranteed with this model: there is no grammar of its "
            f"tool-call format ({model.markup.tools.name}).",
            param=param,
            code="unsupported_value",
        )
    # A weak model that has to call and may go on calling does not stop: several forced calls only where asked for.
    single = legacy or parallel is False or (choice.mode == "required" and parallel is None)
    return ToolPlan(
        rendered=rendered,
        offered=offered,
        legacy=legacy,
        forced=choice.mode == "required",
        held=cause is not None or (single and name is not None),
        grammar=None if name is None else partial(_grammar, _Making(name, tools, allowed, model, source, not single)),
    )


def _grammar_name(model: ServedModel) -> str | None:
    """The grammar of the model's tool-call format; Mistral's has an older form, an array, without `[ARGS]`."""
    assert model.markup.tools is not None
    name = model.markup.tools.name
    if name == "mistral" and "[ARGS]" not in (model.tokenizer.template_source or "[ARGS]"):
        name = "mistral_array"
    return name if name in SUPPORTED else None


def _why_grammar(
    tools: Sequence[Tool], allowed: Sequence[Tool], choice: ToolChoice, parallel: bool | None
) -> tuple[str, str] | None:
    """The field that only a grammar can honour, and what it asks for; None if there is none."""
    if choice.mode == "required":
        return "tool_choice", "a call that has to be made"
    if parallel is False:
        return "parallel_tool_calls", "at most one call"
    if len(allowed) < len(tools):
        return "tool_choice", "a choice among the tools"
    for i, tool in enumerate(tools):
        if tool.strict:
            return f"tools[{i}].function.strict", "arguments that follow their schema"
        if tool.custom is not None and tool.custom.kind != "text":
            return f"tools[{i}].custom.format", "input that follows a grammar"
    return None


@dataclass(frozen=True, slots=True)
class _Making:
    """What the grammar of a request's tools is made of."""

    format: str
    tools: Sequence[Tool]
    allowed: Sequence[Tool]
    model: ServedModel
    field: str
    parallel: bool

    def compiled(self, some: Sequence[Tool], mode: Mode) -> str:
        grammars = self.model.grammars
        specs = [_spec(tool) for tool in some]
        source = tool_grammar(
            self.format, specs, grammars.vocabulary, mode=mode, parallel=self.parallel, follow=not self.parallel
        )
        grammars.compile(source)
        return source


def _grammar(making: _Making, mode: Mode) -> str:
    """The source of the grammar, which compiles.

    Raises:
        BadRequest: with the path of the tool that it cannot be made of.
    """
    try:
        return making.compiled(making.allowed, mode)
    except GrammarError as error:
        failure = error
    for i, tool in enumerate(making.tools):  # which of them is it?
        if tool in making.allowed:
            try:
                making.compiled([tool], mode)
            except GrammarError as error:
                raise _bad_tool(tool, i, making.field, error) from error
    raise BadRequest(f"No grammar can be made of these tools: {failure}", param=making.field) from failure


def _spec(tool: Tool) -> ToolSpec:
    custom = None if tool.custom is None else (tool.custom.kind, tool.custom.definition)
    return ToolSpec(tool.name, tool.parameters, tool.strict, custom)


def _bad_tool(tool: Tool, index: int, field: str, error: GrammarError) -> BadRequest:
    why = str(error).removeprefix(f"Tool '{tool.name}': ")
    if tool.custom is not None:
        return BadRequest(
            f"Invalid grammar for custom tool '{tool.name}': {why}",
            param=f"{field}[{index}].custom.format.grammar.definition",
            code="invalid_value",
        )
    path = f"{field}[{index}].parameters" if field == "functions" else f"{field}[{index}].function.parameters"
    return BadRequest(
        f"Invalid schema for function '{tool.name}': {why}", param=path, code="invalid_function_parameters"
    )
