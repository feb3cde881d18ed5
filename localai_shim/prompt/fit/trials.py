"""Search for the form in which a chat template takes conversations, by rendering a few generated ones.

Templates do not declare what they need, and many silently drop what they do not know. So each form is judged by the
rendered text. The form that shows the most is taken; of several such forms, the one with the fewest changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from ...formats.table import PLAIN
from ...threads.deadline import Budget
from ...types import Json
from ..history import Message
from .form import Form

Render = Callable[[list[Message], dict[str, object], list[Json] | None], str]
"""(messages, variables, tools) -> the text of a conversation. It raises what the template raises."""


class RenderedText:
    """Text that a template made, before it is tokenised. It is passed as `restore`.

    Args:
        restore: changes the text; None: nothing does.
    """

    def __init__(self, restore: Callable[[str], str] | None) -> None:
        self._restore, self.text = restore, ""

    def __call__(self, text: str) -> str:
        self.text = text
        return text if self._restore is None else self._restore(text)

    def holds(self, messages: Sequence[Message]) -> bool:
        """True if the text contains all that these messages say."""
        contents = [message["content"] for message in messages]
        return all(content.strip() in self.text for content in contents if isinstance(content, str))


# Words that no template has, so that it is plain where they come from.
_SYSTEM, _LATER = "zqsystem", "zqlater"
_USER, _NEXT = "zquser", "zqnext"
_ANSWER, _LAST = "zqanswer", "zqlast"
_CALLED, _OTHER = "zqcalled", "zqother"
_KEY, _VALUE, _INNER, _SECOND = "zqkey", "zqvalue", "zqinner", "zqsecond"
_RESULT, _RESULT_2 = "zqresult", "zqoutcome"
_TOOL, _DESCRIBED, _PARAMETER = "zqtool", "zqdescribed", "zqparameter"
_UNKNOWN_ROLE = "zqrole"
_MALFORMED = '{"zqkey": zqvalue'

_TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": _TOOL,
            "description": _DESCRIBED,
            "parameters": {"type": "object", "properties": {_PARAMETER: {"type": "string"}}, "required": [_PARAMETER]},
        },
    }
]
_ARGUMENTS = {_KEY: _VALUE}


def _says(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _call(call_id: str, name: str, arguments: object) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _calls(*calls: Json, **more: str) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **more}


def _result(call_id: str, name: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


_ID, _ID_2 = "call_zq0123456789", "call_zq9876543210"
_system, _later = _says("system", _SYSTEM), _says("system", _LATER)
_user, _next = _says("user", _USER), _says("user", _NEXT)
_answer, _last = _says("assistant", _ANSWER), _says("assistant", _LAST)
_one_call = _calls(_call(_ID, _CALLED, _ARGUMENTS))
_results = [_result(_ID, _CALLED, _RESULT), _result(_ID_2, _OTHER, _RESULT_2)]
_turn = [_one_call, _results[0]]


@dataclass(frozen=True, slots=True)
class _Trial:
    """A conversation, and the texts that its rendering must contain.

    Attributes:
        ordered: they must come in this order.
    """

    messages: Sequence[Message]
    texts: Sequence[str]
    ordered: bool = False

    def missing(self, rendered: str) -> int:
        """Number of the texts that a rendering does not contain."""
        at, missing = 0, 0
        for text in self.texts:
            found = rendered.find(text, at)
            missing += found < 0
            if self.ordered and found >= 0:
                at = found + len(text)
        return missing


_HEAD = [
    _Trial([_system, _user], [_SYSTEM, _USER]),
    _Trial([_system, _user, _answer, _next], [_SYSTEM, _USER, _NEXT]),
]
_HEAD_WITH_OTHER_LAST = [
    _Trial([_system, _user, _answer], [_SYSTEM]),
    _Trial([_system, _user, *_turn], [_SYSTEM]),
]
_TWO_HEADS = [_Trial([_system, _later, _user], [_SYSTEM, _LATER], ordered=True)]
_SYSTEM_ONLY = [_Trial([_system], [_SYSTEM])]
_NO_USER = [_Trial([_system, *_turn], [_SYSTEM, _CALLED, _VALUE, _RESULT])]
_ASSISTANT_FIRST = [
    _Trial([_answer, _user], [_ANSWER, _USER]),
    _Trial([_system, _answer, _user], [_ANSWER, _USER]),
]
_CALL_FIRST = [_Trial([_system, *_turn, _user], [_CALLED, _VALUE, _RESULT, _USER])]
_REPEATS = {
    "user": [_Trial([_user, _next], [_USER, _NEXT]), _Trial([_user, _answer, _user, _next], [_USER, _NEXT])],
    "assistant": [_Trial([_user, _answer, _last, _next], [_ANSWER, _LAST, _NEXT])],
}
_LATE = [
    _Trial([_user, _answer, _later, _next], [_USER, _LATER, _NEXT]),
    _Trial([_system, _user, _later], [_SYSTEM, _USER, _LATER]),
    _Trial([_system, _user, _answer, _later, _next], [_SYSTEM, _USER, _LATER, _NEXT]),
]
_CALL = [_Trial([_user, *_turn], [_CALLED, _VALUE], ordered=True)]
_PARALLEL = [
    _Trial(
        [_user, _calls(_call(_ID, _CALLED, _ARGUMENTS), _call(_ID_2, _OTHER, {_KEY: _SECOND})), *_results],
        [_CALLED, _VALUE, _OTHER, _SECOND],
    )
]
_TEXT_BESIDE = [_Trial([_user, {**_one_call, "content": _ANSWER}, _results[0]], [_ANSWER, _VALUE])]
_TEXT_BEFORE = [_Trial([*_TEXT_BESIDE[0].messages, _last, _next], [_ANSWER, _VALUE, _LAST])]
_ALL_BESIDE = [_Trial([_user, {**_one_call, "content": _ANSWER, "reasoning_content": _LAST}, _results[0]], [_VALUE])]
_BROKEN = [_Trial([_user, _calls(_call(_ID, _CALLED, _MALFORMED)), _results[0]], [_CALLED, _VALUE])]
_NESTED = _Trial(
    [_user, _calls(_call(_ID, _CALLED, {_PARAMETER: _VALUE, _KEY: {_INNER: [True, None]}})), _results[0]], [_INNER]
)
_RESULT_SHOWN = [
    _Trial([_user, *_turn], [_RESULT]),
    _Trial([*_PARALLEL[0].messages], [_RESULT, _RESULT_2], ordered=True),
]
_USER_AFTER_RESULT = [_Trial([_user, *_turn, _next], [_USER, _RESULT, _NEXT], ordered=True)]
_SHOWN_TOOLS = [_Trial([_user], [_TOOL, _DESCRIBED, _PARAMETER])]
_STILL_SHOWN_TOOLS = [_Trial([_user, *_turn], [_TOOL, _DESCRIBED, _PARAMETER])]


_forms: dict[tuple[Hashable, bool], Form | None] = {}
"""Forms by template, and whether tools are offered; None: it does not show them."""


class Fitting:
    """Findings on how one chat template takes conversations, each made when it is asked for first, and kept in the
    process.

    Args:
        render: renders it.
        key: equal for equal templates that are rendered alike.
        budget: of the search, after which the plain form is taken.
        reads_tools: the template looks at the tools, as far as its source tells.
    """

    def __init__(self, render: Render, key: Hashable, budget: Budget, reads_tools: bool) -> None:
        self._render, self._key = render, key
        self._budget, self._reads_tools = budget, reads_tools

    @property
    def without_tools(self) -> Form:
        """The form of conversations where no tools are offered."""
        return self._found(None, Form()) or Form()

    @property
    def with_tools(self) -> Form | None:
        """The form of conversations where tools are offered; None: the template does not show them."""
        return self._found(_TOOLS, Form() if self._reads_tools else None)

    def form(self, tools: list[Json] | None) -> Form:
        """The form of a conversation.

        Args:
            tools: what is offered in it; where the template does not show them, neither are calls and results given to
                it as such.
        """
        if not tools:
            return self.without_tools
        return self.with_tools or replace(self.without_tools, calls=False, results="user")

    def _found(self, tools: list[Json] | None, plain: Form | None) -> Form | None:
        """The form that is found; `plain` where the search takes too long."""
        key = self._key, tools is not None
        if key not in _forms:
            _forms[key] = self._budget.find(
                "the form of conversations that it takes best",
                lambda: _Search(self._text, tools).form(),
                lambda: plain,
            )
        return _forms[key]

    def _text(self, messages: list[Message], form: Form, tools: list[Json] | None) -> str | None:
        """The rendering of a conversation in a form; None: the template refuses it."""
        variables, tools = form.variables(tools)
        try:
            return self._render(form.fit(messages, PLAIN), variables, tools)
        except (ImportError, MemoryError):
            raise
        except Exception:  # templates raise what they like
            return None


class _Search:
    """The search of one form.

    Args:
        text: renders a conversation in a form; None where it is refused.
        tools: what is offered.
    """

    def __init__(
        self, text: Callable[[list[Message], Form, list[Json] | None], str | None], tools: list[Json] | None
    ) -> None:
        self._text, self._tools = text, tools
        self._form = Form()
        self._find_variables()

    def form(self) -> Form | None:
        """The form that shows the most with the fewest changes; None: it would not show the tools in their entirety."""
        if self._lacks(_SHOWN_TOOLS):
            return None
        self._find_roles()
        self._find_calls()
        self._find_results()
        return None if self._lacks(_STILL_SHOWN_TOOLS) else self._form

    def _lacks(self, trials: Sequence[_Trial]) -> bool:
        """Tools are offered, and not all of them is shown."""
        return self._tools is not None and self._cost(self._form, trials) > 0

    # -----------------------------------------------------------------------------------------------------------

    def _find_variables(self) -> None:
        if self._tools is None:
            if self._text([_user], self._form, None) is None:
                empty = [{"empty": names} for names in ((), ("tools",), ("documents",), ("tools", "documents"))]
                self._choose([_Trial([_user], [_USER])], [*empty, {"tools_in": "functions"}])
            return
        alone = [{"tools_in": name} for name in ("xml_tools", "functions")]
        opening = [{"opens": True}, {"opens": True, "describes": True}]
        self._choose(_SHOWN_TOOLS, [{}, {"describes": True}, {"empty": ("documents",)}, *opening, *alone])

    def _find_roles(self) -> None:
        self._choose(_REPEATS["user"], [{}, {"repeats": frozenset({"assistant"})}])
        fewer = self._form.repeats - {"assistant"}
        self._choose(_REPEATS["assistant"], [{}, {"repeats": fewer}])
        self._choose(_HEAD, [{}, {"system": "user"}])
        if self._form.system == "own":
            last = {"system": "own if the user is last"}
            self._choose(_HEAD_WITH_OTHER_LAST, [{}, last])
        self._choose(_TWO_HEADS, [{}, {"one_system": True}], _repeated_tools)
        self._choose(_ASSISTANT_FIRST, [{}, {"user_first": True}])
        self._choose(_SYSTEM_ONLY, [{}, {"needs_user": True}])
        self._choose(_LATE, [{}, {"late_system": False}], _repeated_tools)
        self._form = replace(self._form, developer=self._knows_developer())

    def _knows_developer(self) -> bool:
        """The template treats this role otherwise than one that no template knows, and shows what it says."""
        form = replace(self._form, system="own")
        roles = "developer", _UNKNOWN_ROLE, "developer"
        known, unknown, again = (self._text([_says(role, _SYSTEM), _user], form, self._tools) for role in roles)
        if known is None or _SYSTEM not in known:
            return False
        differs = unknown is None or unknown.replace(_UNKNOWN_ROLE, "developer") != known
        return differs and known == again  # otherwise it writes the time, or something random

    def _find_calls(self) -> None:
        kinds = itertools.product(("object", "string"), ("any", "short", "numbered"), ("", None))
        names = ("arguments", "ids", "blank")
        options = [dict(zip(names, kind, strict=True)) for kind in kinds]
        options.sort(key=lambda option: sum(option[name] != getattr(self._form, name) for name in names))
        if self._choose(_CALL, options, _misencoded) >= 1:
            written = {**options[0], "calls": False}
            self._choose(_CALL, [{}, written, {**written, "results": "user"}])
        if not self._form.calls:
            return
        self._choose(_PARALLEL, [{}, {"one_call": True}])
        if self._cost(self._form, _TEXT_BESIDE) > 0:
            self._choose(_TEXT_BEFORE, [{"text_beside": "dropped"}, {"text_beside": "apart"}])
        self._choose(_ALL_BESIDE, [{}, {"text_as_reasoning": True}])
        self._choose(_BROKEN, [{}, {"wraps": True}])
        self._choose([_NESTED], [{}, {"values": "json"}, {"values": "python"}], _misencoded_values)

    def _find_results(self) -> None:
        self._choose(_RESULT_SHOWN, [{}, {"results": "parts"}, {"results": "user"}])
        if self._form.results != "user":
            self._choose(_USER_AFTER_RESULT, [{}, {"answers_results": True}, {"results": "user"}])
        self._choose(_CALL_FIRST, [{}, {"user_first": True}])
        self._choose(_NO_USER, [{}, {"needs_user": True}])

    def _choose(
        self,
        trials: Sequence[_Trial],
        options: Iterable[Json],
        fault: Callable[[str], float] = lambda rendered: 0,
    ) -> float:
        """Take the first of the options with the lowest cost.

        Args:
            trials: the conversations to render.
            options: changes to the form so far.
            fault: cost of a rendering in addition to its missing texts.

        Returns:
            Its cost; below 1 if the renderings contain all texts.
        """
        best, least = self._form, float("inf")
        for option in options:
            form = replace(self._form, **option)
            cost = self._cost(form, trials, fault)
            if cost < least:
                best, least = form, cost
            if cost == 0:
                break
        self._form = best
        return least

    def _cost(self, form: Form, trials: Sequence[_Trial], fault: Callable[[str], float] = lambda rendered: 0) -> float:
        cost: float = 0
        for trial in trials:
            rendered = self._text(list(trial.messages), form, self._tools)
            if rendered is None:
                cost += len(trial.texts) + (self._tools is not None)
                continue
            hidden = self._tools is not None and _DESCRIBED not in rendered
            cost += trial.missing(rendered) + hidden + fault(rendered)
        return cost


def _repeated_tools(rendered: str) -> float:
    """Cost of tools that every system message contains."""
    return 0.5 if rendered.count(_DESCRIBED) > 1 else 0


def _misencoded(rendered: str) -> float:
    """Cost of arguments written as JSON in JSON, or as Python writes a dict, and of results that name another id."""
    other_id = rendered.count(f"functions.{_CALLED}:0") == 1  # Kimi K2's, in the call alone
    return 0.5 if other_id or f'\\"{_KEY}' in rendered or f"'{_KEY}'" in rendered else 0


def _misencoded_values(rendered: str) -> float:
    """Cost of values if strings are written without quotes: in a Python call, or nested ones as Python writes them."""
    if f"{_PARAMETER}={_VALUE}" in rendered:
        return 0.5
    is_python = f"{_KEY}={{" in rendered
    quoted = any(f"{quote}{_VALUE}" in rendered for quote in "'\"")
    return 0.5 if f"'{_INNER}'" in rendered and not quoted and not is_python else 0
