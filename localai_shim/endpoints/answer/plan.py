"""Fields that chat completions and responses share: tools, format, thinking; and the plan of an answer.

The plan says how the answer is read, on the consumer's side, and constrained by a grammar, on the engine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import BadRequest
from ...formats.description import CallFormat
from ...formats.grammar.answers import Mode, call_or, content_in_channels, no_call
from ...grammar import GrammarError
from ...grammar.compile import Grammar
from ...grammar.constraint import RowConstraint
from ...output.answer import AnswerParser, TextParser
from ...output.channels import ChannelSplitter
from ...output.stop import RowText
from ...prompt.history import Message
from ...prompt.template import Conversation
from ...types import GenerationRequest, GrammarConstraint, Prompt
from ..request_fields import Generation, Limits, make_requests
from ..served import ServedModel
from .format import AnswerFormat
from .thinking import ThinkingPlan, follow_thinking
from .tools import ToolPlan


class AnswerPlan:
    """Makes the parser and the grammar constraint of each choice of a request.

    Args:
        model: what serves the request.
        asked: what it may call, what its content has to be, and how much it may think.
        prompt_end: the end of the rendered prompt.
        continuing: the answer continues the prompt's last message.

    Raises:
        BadRequest: a grammar cannot be compiled.
    """

    def __init__(self, model: ServedModel, asked: Asked, prompt_end: str, *, continuing: bool = False) -> None:
        # A grammar's text is all that the tokens say, a space at its beginning included.
        self._continuing = continuing or (asked.format is not None and not asked.tools.forced)
        self._model, self._tools, self._format = model, asked.tools, asked.format
        self._thinking, self._prompt_end = asked.thinking, prompt_end
        self._markup = model.markup.of_request(offered=asked.tools.rendered is not None)
        self._state = model.markup.state_after(prompt_end)
        self._forbidden = self._forbidden_tokens()
        self._grammar = self._compile(self._source(thoughts=True))
        self._after = self._compile(self._source_behind_thoughts())

    def parser(self, limits: Limits, *, with_tokens: bool) -> TextParser:
        """Reader of a choice's tokens."""
        detokenizer = self._model.tokenizer.detokenizer(continuing=self._continuing)
        rules = limits.rules(self._model)
        if self._markup.plain:
            return TextParser(
                detokenizer, limits.stop, min_tokens=limits.min_tokens, with_tokens=with_tokens, rules=rules
            )
        return AnswerParser(
            detokenizer,
            self._markup,
            state=self._state,
            tools=self._tools.offered,
            stop=limits.stop,
            min_tokens=limits.min_tokens,
            with_tokens=with_tokens,
            rules=rules,
        )

    def text(self, limits: Limits) -> RowText:
        """The engine's side of the text."""
        splitter = ChannelSplitter(self._markup, state=self._state, tools=self._tools.offered)
        return limits.text(self._model, splitter, continuing=self._continuing)

    def constraint(self, text: Callable[[], RowText]) -> GrammarConstraint | None:
        """A choice's grammar constraint; None: it may be any text."""
        grammar = self._grammar
        thinking = follow_thinking(self._thinking, self._model, self._prompt_end, text, has_grammar=grammar is not None)
        if grammar is None and thinking is None:
            return None
        matcher, after = (None if each is None else each.matcher() for each in (grammar, self._after))
        return RowConstraint(matcher, thinking, from_start=self._model.markup.channels is not None, after=after)

    def requests(self, prompt: Prompt, n: int, generation: Generation, *, param: str) -> list[GenerationRequest]:
        """One request per choice; see `make_requests`."""
        if self._forbidden:  # tokens that begin calls, where none may be made
            bias = {**generation.sampling.logit_bias, **dict.fromkeys(self._forbidden, -math.inf)}
            generation = replace(generation, sampling=replace(generation.sampling, logit_bias=bias))
        return make_requests(
            prompt, n, generation, self._model, param=param, text=self.text, constraint=self.constraint
        )

    # -----------------------------------------------------------------------------------------------------------

    def _forbidden_tokens(self) -> list[int]:
        """The tokens that begin calls, where none may be made and each beginning is one token; none otherwise."""
        markup, encode = self._model.markup, self._model.tokenizer.encode_marker
        if not self._tools.forbidden or markup.tools is None or markup.channels is not None:
            return []
        markers = [encode(marker) for marker in self._beginnings(markup.tools)]
        return [tokens[0] for tokens in markers] if all(len(tokens) == 1 for tokens in markers) else []

    def _beginnings(self, format: CallFormat) -> Sequence[str]:
        """Beginnings of calls that are ruled out where none may be made; none where answers are not read for calls."""
        return () if format.bare else (*format.starts, *format.heads)

    def _compile(self, source: str | None) -> Grammar | None:
        if source is None:
            return None
        try:
            return self._model.grammars.compile(source)
        except GrammarError as error:
            if self._format is None:
                raise BadRequest(f"The grammar of these tools does not compile: {error}", param="tools") from error
            raise self._format.refused(error) from error

    def _source(self, *, thoughts: bool) -> str | None:
        """The grammar of the whole answer; of an answer in channels it covers the reasoning, too.

        Args:
            thoughts: there may be some; otherwise the answer begins behind them.
        """
        tools, format, channels = self._tools, self._format, self._model.markup.channels
        if tools.forced or format is None:
            mode: Mode = "required" if tools.forced else "auto"
            if tools.forbidden:
                return self._without_calls(thoughts=thoughts)
            return tools.grammar(mode, thoughts) if tools.constrained and tools.grammar is not None else None
        content = format.source
        if channels is not None:
            content = content_in_channels(content, channels, self._model.grammars.vocabulary, thoughts=thoughts)
        if tools.grammar is None:
            return content
        self._model.grammars.compile(format.source)  # so that an error is about the format
        return call_or(tools.grammar("required", thoughts), content)

    def _source_behind_thoughts(self) -> str | None:
        """The grammar of what follows when the budget of thought is spent, of an answer in channels.

        Without one the model could continue to think in the next message. In other answers the openers of blocks are
        banned.
        """
        markup = self._model.markup
        if markup.channels is None or not markup.thinks or self._thinking.budget_of(closed=False) is None:
            return None
        source = self._source(thoughts=False)
        if source is not None or markup.tools is None:
            return source
        if self._tools.grammar is not None:
            return self._tools.grammar("auto", False)
        return no_call(markup, self._model.grammars.vocabulary, thoughts=False)

    def _without_calls(self, *, thoughts: bool) -> str | None:
        """The grammar of free text in which no call begins; None where no token that could is ever sampled."""
        markup = self._model.markup
        if markup.tools is None or self._forbidden or not (markup.channels or self._beginnings(markup.tools)):
            return None
        return no_call(markup, self._model.grammars.vocabulary, thoughts=thoughts)


@dataclass(frozen=True, slots=True)
class Asked:
    """Fields of a request for one message. Requests with the same fields share it, unchanged."""

    tools: ToolPlan
    format: AnswerFormat | None
    thinking: ThinkingPlan
    special: bool
    """The caller's texts may spell special tokens."""

    def conversation(self, messages: list[Message], variables: Mapping[str, object] | None = None) -> Conversation:
        """The messages as they are rendered, with more `variables` for the template."""
        thinking = self.thinking
        given = {**thinking.variables, **(variables or {})}
        return Conversation(thinking.messages(messages), given, self.tools.rendered, self.special)
