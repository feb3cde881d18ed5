"""Chat completions that search the web between rounds: `web_search_options`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from openai.types.chat import ChatCompletionChunk

from ...errors import TOO_LONG, BadRequest
from ...output.answer import TextParser
from ...prompt.history import Message
from ...types import GenerationRequest, Json, Prompt, Token
from ..hosted.hooks import Call, run, too_long
from ..hosted.kind import HostedTool, Outcome
from ..hosted.room import are_short
from ..hosted.running import run_all
from ..turn import Round
from .assembler import ChatAssembler, new_call_id
from .search_parser import SearchParser


class Continuation(NamedTuple):
    """The next round of a choice."""

    prompt: Prompt
    parser: TextParser
    work: GenerationRequest


@dataclass(frozen=True, slots=True)
class Searching:
    """The search of a request.

    Attributes:
        tool: what the model sees of it.
        hook: serves it.
        go_on: makes the next round of a choice, of: the messages behind the request's, the number of tokens that the
            choice has generated, and its index. None: no token is left for it.
        fits: finds out if the context has room for these messages, and for an answer.
    """

    tool: HostedTool
    hook: Call
    go_on: Callable[[list[Message], int, int], Continuation | None]
    fits: Callable[[list[Message]], bool]


class SearchAssembler(ChatAssembler):
    """A completion that may search the web. `use` must be called before it begins."""

    cited: Mapping[int, list[Json]] | None = None
    """Recorded annotations of the choices; None: they are made."""

    def use(self, searching: Searching) -> None:
        """Serve searches."""
        self._searching = searching
        self._parsers = self._readers = [SearchParser(parser, searching.tool.name) for parser in self._parsers]
        self._active: Sequence[int] = range(len(self._readers))
        """Choices of this round, in the order of its works."""
        self._messages: list[list[Message]] = [[] for _ in self._readers]
        """Searches of each choice, as its next prompt has them."""
        self._pages: list[list[Json]] = [[] for _ in self._readers]
        """Results of each choice."""

    def feed(self, index: int, token: Token) -> list[ChatCompletionChunk]:
        return super().feed(self._active[index], token)

    def collect(self, index: int, token: Token) -> None:
        super().collect(self._active[index], token)

    def next_round(self) -> Round:
        """Search for each choice that asks for it: all searches run concurrently."""
        chunks: list[ChatCompletionChunk] = []
        made: dict[int, Continuation] = {}
        searching = {index: reader for index, reader in enumerate(self._readers) if reader.continues}
        outcomes = iter(run_all([call for reader in searching.values() for call in self._searches(reader)]))
        for index, reader in searching.items():
            self._take_results(index, reader, outcomes)
            following = self._following(index, reader)
            if following is None:
                reader.continues = False
                chunks += self._end(index, "length")
            else:
                made[index] = following
                reader.follow(following.parser)
                self._later.append((index, following.prompt))
        self._active = list(made)
        return Round(chunks, [each.work for each in made.values()], ends=not made)

    def _searches(self, reader: SearchParser) -> Iterator[Callable[[], Outcome]]:
        """Calls of the hook for the searches of a choice's round."""
        tool = self._searching.tool
        for pieces in reader.searches.values():
            query = tool.hosted.read_argument("".join(pieces))
            yield partial(run, tool, self._searching.hook, query, tool.options)

    def _take_results(self, index: int, reader: SearchParser, outcomes: Iterator[Outcome]) -> None:
        """Add a round's searches and their results to the messages of a choice.

        Args:
            outcomes: of this choice's searches, and then of others'.
        """
        tool = self._searching.tool
        asked = ["".join(pieces) for pieces in reader.searches.values()]
        ids = [new_call_id() for _ in asked]
        calls = [_call(id, tool, arguments) for id, arguments in zip(ids, asked, strict=True)]
        said: Message = {"role": "assistant", "content": "".join(reader.round_text), "tool_calls": calls}
        if reader.round_reasoning:
            said["reasoning_content"] = "".join(reader.round_reasoning)
        results: list[Message] = [{"role": "tool", "content": "", "tool_call_id": id, "name": tool.name} for id in ids]
        before = [*self._messages[index], said]
        self._messages[index] = [*before, *results]
        for result in results:
            outcome = next(outcomes)
            result["content"] = outcome.output
            if not (outcome.failed or self._fits(index, reader, results)):
                outcome = too_long(tool)
                result["content"] = outcome.output
            self._pages[index] += outcome.found

    def _fits(self, index: int, reader: SearchParser, results: Sequence[Message]) -> bool:
        prompt = next((prompt for i, prompt in reversed(self._later) if i == index), self._prompt)
        texts = [str(result["content"]) for result in results]
        before = len(prompt.tokens) + reader.generated
        return are_short(texts, before, self._model.context_length) or self._searching.fits(self._messages[index])

    def _following(self, index: int, reader: SearchParser) -> Continuation | None:
        """The next round of a choice; None: the context is full, or no token is left."""
        try:
            return self._searching.go_on(self._messages[index], reader.generated, index)
        except BadRequest as error:
            if error.code != TOO_LONG:
                raise
            return None

    def _annotations(self, index: int) -> list[Json]:
        """The citations, in the form of this API."""
        if self.cited is not None:
            return self.cited.get(index, [])
        cited = self._searching.tool.hosted.citations("".join(self._readers[index].said), self._pages[index])
        return [
            {"type": each["type"], each["type"]: {name: value for name, value in each.items() if name != "type"}}
            for each in cited
        ]


def _call(id: str, tool: HostedTool, arguments: str) -> Json:
    """A search, as prompts have it."""
    hosted = tool.hosted
    given = {hosted.argument: hosted.read_argument(arguments) or ""}
    return {"id": id, "type": "function", "function": {"name": tool.name, "arguments": given}}
