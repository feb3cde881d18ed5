"""Checks of a test's expectations, and the messages where they do not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from .requests import Request
from .script import Criteria, describe, mismatch, shorten


@dataclass(frozen=True, slots=True)
class Usage:
    """Total tokens of several requests.

    Example:
        >>> from localai_shim.testing import scripted
        >>> with scripted("one two") as client:
        ...     answer = client.responses.create(model="any", input="Count")
        ...     client.usage.requests, client.usage.completion_tokens == answer.usage.output_tokens
        (1, True)
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def usage_of(calls: Sequence[Request]) -> Usage:
    """The usage of some requests so far."""
    return Usage(len(calls), sum(c.prompt_tokens for c in calls), sum(c.completion_tokens for c in calls))


class Budget:
    """Maximum number of tokens and requests, from its creation on, or inside a `with` block.

    Example:
        >>> from localai_shim.testing import scripted
        >>> with scripted("Hello!") as client:
        ...     with client.token_budget(max_requests=1) as budget:
        ...         answer = client.responses.create(model="any", input="Hi")
        ...     budget.spent.requests
        1
    """

    def __init__(self, calls: Sequence[Request], limits: Mapping[str, int | None]) -> None:
        self._calls, self._first = calls, len(calls)
        self._last: int | None = None
        self.is_over = False
        """Its block has ended, and was told whether it was exceeded."""
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        if not self._limits:
            raise TypeError("a budget limits something: pass max_total, max_prompt, max_completion or max_requests")

    @property
    def spent(self) -> Usage:
        return usage_of(self._calls[self._first : self._last])

    def over(self) -> str | None:
        """Description of the limits that are exceeded; None if there are none."""
        spent = self.spent
        taken = {
            "max_total": spent.total_tokens,
            "max_prompt": spent.prompt_tokens,
            "max_completion": spent.completion_tokens,
            "max_requests": spent.requests,
        }
        over = [f"{taken[name]} of {name}={limit}" for name, limit in self._limits.items() if taken[name] > limit]
        if not over:
            return None
        lines = [
            f"  {call.brief()}: {call.prompt_tokens} prompt + {call.completion_tokens} completion tokens"
            for call in self._calls[self._first : self._last]
        ]
        return "\n".join([f"the token budget is exceeded: {', '.join(over)}", *lines])

    def __enter__(self) -> Self:
        self._first = len(self._calls)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._last, self.is_over = len(self._calls), True
        if error is None and (problem := self.over()) is not None:
            raise AssertionError(problem)


def check_called(calls: Sequence[Request], times: int | None, criteria: Criteria) -> None:
    """Raise AssertionError unless `times` requests (None: at least one) match."""
    misses = [(call, mismatch(criteria, call)) for call in calls]
    found = sum(why is None for _, why in misses)
    if found == times or (times is None and found):
        return
    expected = "at least one request" if times is None else f"{times} request{'s' * (times != 1)}"
    matching = f" matching {describe(criteria)}" if criteria else ""
    lines = [f"  {call.brief()}{f' -- {why}' if why else ''}" for call, why in misses]
    raise AssertionError("\n".join([f"expected {expected}{matching}, found {found} of {len(calls)}:", *lines]))


def check_tool_called(calls: Sequence[Request], name: str, wanted: Mapping[str, object]) -> None:
    """Raise AssertionError unless an answer called a tool with these arguments, among others."""
    made = [(tool, arguments) for call in calls for tool, arguments in call.tool_calls]
    nearest: list[str] = []
    for tool, arguments in made:
        given = arguments if isinstance(arguments, dict) else {}
        wrong = {key for key, value in wanted.items() if key not in given or given[key] != value}
        if is_tool(tool, name) and not wrong:
            return
        note = ", ".join(f"{key}: expected {wanted[key]!r}, got {_got(given, key)}" for key in wanted if key in wrong)
        nearest.append(f"  {_shown_call(tool, arguments)}" + (f" -- {note}" if is_tool(tool, name) else ""))
    heading = f"no answer called {_shown_call(name, wanted)}; the calls were:"
    raise AssertionError("\n".join([heading, *(nearest or ["  none"])]))


def is_tool(full_name: str, name: str) -> bool:
    """True if a test may name a tool so: by all of its name, or without its namespace."""
    return name in (full_name, full_name.replace(".", "__"), full_name.rpartition(".")[2])


def check_tool_result(calls: Sequence[Request], text: str) -> None:
    """Raise AssertionError unless a request brought a tool's result with this text in it."""
    results = [result for call in calls for result in call.tool_results]
    if not any(text in result for result in results):
        lines = [f"  {shorten(result)}" for result in results] or ["  none"]
        raise AssertionError("\n".join([f"no request brought a tool result with {text!r}; the results were:", *lines]))


def _got(given: Mapping[str, object], key: str) -> str:
    return repr(given[key]) if key in given else "nothing"


def _shown_call(name: str, arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        return f"{name}({arguments!r})"
    return f"{name}({', '.join(f'{key}={shorten(value)}' for key, value in arguments.items())})"
