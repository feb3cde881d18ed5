"""The tools of a request: what the model sees of them, what it may call, and the grammar that calls have to follow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import BadRequest
from ...formats.grammar.answers import Mode, answer_with_calls
from ...formats.values import OfferedTools
from ...grammar import GrammarError
from ...grammar.tool import Tool
from ...types import Json
from ..fields import Fields
from ..hosted.kind import CalledTool, HostedTool
from ..hosted.mcp.entry import ServerEntry
from ..served import ServedModel
from .tool_fields import ToolChoice, bad_schema, check_names, read_tool_choice, read_tools


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """Plan for calls that follows from the tool fields of a request.

    Attributes:
        rendered: the tools as the chat template reads them; None: it gets none.
        offered: what the model may call.
        forbidden: it may call nothing, although it is shown tools.
        legacy: the caller uses `functions`, and gets a `function_call`.
        forced: the answer must be a call.
        constrained: the calls have to follow the grammar.
        grammar: makes the grammar of an answer that is calls only ("required"), or may have some ("auto"), behind any
            thoughts or, with False, without; None: nothing may be called.
        strict: functions that did not say whether they are strict are.
        namespaces: the name that the model knows -> namespace and name, of tools in namespaces.
        hosted: the hosted tools, by the names that the model knows.
        later: makes the plan behind a call of a hosted tool; with True no such tool may be called any more.
        servers: MCP servers whose tools are not known yet. Nothing is rendered before they are.
        with_servers: makes the plan with the tools of these servers, by label, in the form that items have.
    """

    rendered: list[dict[str, object]] | None = None
    offered: OfferedTools = field(default_factory=OfferedTools)
    forbidden: bool = False
    legacy: bool = False
    forced: bool = False
    constrained: bool = False
    grammar: Callable[[Mode, bool], str] | None = None
    strict: bool = True
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    hosted: Mapping[str, CalledTool] = field(default_factory=dict[str, CalledTool])
    later: Callable[[bool], ToolPlan] | None = None
    servers: Sequence[ServerEntry] = ()
    with_servers: Callable[[Mapping[str, Sequence[Json]]], ToolPlan] | None = None


def read_tool_plan(fields: Fields, model: ServedModel, search: HostedTool | None = None) -> ToolPlan:
    """`tools`, `tool_choice`, `parallel_tool_calls` of chat.completions, and its deprecated `functions` and
    `function_call`.

    Args:
        search: a further tool, which may be called unless another one has to be.

    Raises:
        BadRequest: with the path of what is wrong, or of what this model has no way to honour.
    """
    legacy = fields.has("functions")
    if legacy and fields.has("tools"):
        raise BadRequest("Pass 'tools' or the deprecated 'functions', not both.", param="functions")
    tools = read_tools(fields.get("functions"), "legacy") if legacy else read_tools(fields.get("tools"))
    if legacy or fields.has("function_call"):
        choice = read_tool_choice(fields.get("function_call"), tools if legacy else [], "legacy")
    else:
        choice = read_tool_choice(fields.get("tool_choice"), tools)
    parallel = fields.boolean("parallel_tool_calls")
    if parallel is not None and not tools:
        raise BadRequest(
            "Invalid value for 'parallel_tool_calls': it is only allowed when 'tools' are specified.",
            param="parallel_tool_calls",
        )
    if search is not None:
        if legacy:
            raise BadRequest.invalid("functions", f"'functions' and '{search.path}' cannot be combined: pass 'tools'.")
        every, choice = _with_search(search, tools, choice)
        return _plan(every, choice, parallel, model)
    return _plan(tools, choice, parallel, model, legacy=legacy)


def _with_search(search: HostedTool, tools: Sequence[Tool], choice: ToolChoice) -> tuple[Sequence[Tool], ToolChoice]:
    """Tools of a request and a search, and what may be called of all.

    Raises:
        BadRequest: another tool has the name of the search.
    """
    for tool in tools:
        if tool.name == search.name:
            raise BadRequest.invalid(
                f"{tool.path}.name",
                f"'{search.name}' is the name of the search of '{search.path}'. Give your {tool.kind} another name.",
            )
    own = frozenset(tool.name for tool in tools) if choice.names is None else choice.names
    if choice.mode == "required":  # one of the caller's own tools
        return [*tools, search], ToolChoice("required", own)
    return [*tools, search], ToolChoice("auto", (own if choice.mode == "auto" else frozenset()) | {search.name})


def read_flat_tool_plan(fields: Fields, model: ServedModel) -> ToolPlan:
    """`tools`, `tool_choice` and `parallel_tool_calls` of Responses, where all three may be there without any tools.

    Raises:
        BadRequest: with the path of what is wrong, or of what this model has no way to honour.
    """
    given, choice, parallel = fields.get("tools"), fields.get("tool_choice"), fields.boolean("parallel_tool_calls")
    tools = [] if given == [] else read_tools(given, "flat")
    if not tools and choice in ("auto", "none"):
        return ToolPlan()
    read = read_tool_choice(choice, tools, "flat")
    servers = [tool for tool in tools if isinstance(tool, ServerEntry)]
    if not servers:
        return _plan(tools, read, parallel, model)

    def with_servers(found: Mapping[str, Sequence[Json]]) -> ToolPlan:
        known = [tool.tools(found[tool.label]) if isinstance(tool, ServerEntry) else [tool] for tool in tools]
        made = [tool for each in known for tool in each]
        if not made and choice in (None, "auto", "none"):
            return ToolPlan()
        check_names(made)
        return _plan(made, read_tool_choice(choice, made, "flat"), parallel, model)

    own = [tool for tool in tools if not isinstance(tool, ServerEntry)]
    plan = _plan(own, ToolChoice("auto"), parallel, model)
    return ToolPlan(strict=plan.strict, hosted=plan.hosted, servers=servers, with_servers=with_servers)


def _plan(
    tools: Sequence[Tool], choice: ToolChoice, parallel: bool | None, model: ServedModel, *, legacy: bool = False
) -> ToolPlan:
    if not tools:
        return ToolPlan(legacy=legacy)
    rendered = {tool.name: tool.template() for tool in tools}
    namespaces = {tool.name: tool.namespace for tool in tools if tool.namespace is not None}
    field = "functions" if legacy else "tools" if "[" in tools[0].path else tools[0].path
    hosted = {tool.name: tool for tool in tools if isinstance(tool, CalledTool)}
    plan = ToolPlan(rendered=[*rendered.values()], legacy=legacy, namespaces=namespaces, hosted=hosted)
    if hosted:

        def later(spent: bool) -> ToolPlan:
            names = rendered.keys() - hosted.keys() if spent else rendered.keys()
            return _plan(tools, choice.later(names), parallel, model)

        plan = replace(plan, later=functools.lru_cache(maxsize=2)(later))
    if choice.mode == "none":  # the prompt is the same as with "auto", and so in the prefix cache
        return replace(plan, forbidden=True)
    # A weak model that has to call and may go on calling does not stop: several forced calls only where asked for.
    single = legacy or parallel is False or (choice.mode == "required" and parallel is None)
    if model.markup.tools is None:
        raise BadRequest.unsupported_value(
            field,
            f"'{field}' does not work with this model: it has no chat template, or was loaded with tool_format='none'. "
            "Name the format in which it writes calls.",
        )
    making = _Making(model, field, parallel=not single)
    tools, strict = _decided(tools, choice, making)
    allowed = choice.among(tools)
    return replace(
        plan,
        offered=OfferedTools(
            functions=[rendered[tool.name] for tool in allowed],
            custom=frozenset(tool.name for tool in allowed if tool.custom is not None),
        ),
        forced=choice.mode == "required",
        constrained=single or _needs_grammar(tools, choice),
        grammar=functools.cache(functools.partial(making.grammar, allowed)),
        strict=strict,
    )


def _decided(tools: Sequence[Tool], choice: ToolChoice, making: _Making) -> tuple[Sequence[Tool], bool]:
    """The tools, with `strict` decided where it was not given: for all of these or none, as their grammar allows."""
    if all(tool.strict is not None for tool in tools):
        return tools, True
    strict = [replace(tool, strict=True) if tool.strict is None else tool for tool in tools]
    try:
        making.grammar(choice.among(strict), "required" if choice.mode == "required" else "auto")
        return strict, True
    except BadRequest:
        pass
    return [replace(tool, strict=False) if tool.strict is None else tool for tool in tools], False


def _needs_grammar(tools: Sequence[Tool], choice: ToolChoice) -> bool:
    """Something is asked of the calls that no model keeps by itself."""
    if choice.mode == "required" or len(choice.among(tools)) < len(tools):
        return True
    return any(tool.strict or (tool.custom is not None and tool.custom.kind != "text") for tool in tools)


@dataclass(frozen=True, slots=True)
class _Making:
    """Maker of grammars of tools."""

    model: ServedModel
    field: str
    parallel: bool

    def grammar(self, tools: Sequence[Tool], mode: Mode, thoughts: bool = True) -> str:
        """The source of a grammar, which compiles.

        Raises:
            BadRequest: with the path of the tool that it cannot be made of.
        """
        try:
            return self._compiled(tools, mode, thoughts)
        except GrammarError as error:
            failure = error
        for tool in tools:  # which of them is it?
            try:
                self._compiled([tool], mode, thoughts)
            except GrammarError as error:
                raise _bad_tool(tool, error) from error
        raise BadRequest(f"No grammar can be made of these tools: {failure}", param=self.field) from failure

    def _compiled(self, tools: Sequence[Tool], mode: Mode, thoughts: bool) -> str:
        grammars = self.model.grammars
        source = answer_with_calls(
            self.model.markup,
            tools,
            grammars.vocabulary,
            mode=mode,
            parallel=self.parallel,
            follow=not self.parallel,
            thoughts=thoughts,
        )
        grammars.compile(source)
        return source


def _bad_tool(tool: Tool, error: GrammarError) -> BadRequest:
    why = str(error).removeprefix(f"Tool '{tool.name}': ")
    if tool.custom is not None:
        return BadRequest.invalid(tool.custom.path, f"Invalid grammar for custom tool '{tool.name}': {why}")
    return bad_schema(tool.name, f"{tool.path}.parameters", why)
