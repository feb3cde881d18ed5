"""A model's chat template and tokenizer, as the endpoints use them."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from ..errors import BadRequest
from ..formats.description import CallFormat
from ..formats.table import PLAIN
from ..media import MediaKind, MediaSpan, SpelledPlaceholder
from ..output.detokenizer import ByteDetokenizer, Detokenizer, LibraryDetokenizer, TokenBytes
from ..threads.deadline import Budget, check
from ..threads.panics import PanicError, panics_are_errors
from ..types import common_length
from . import history
from .control_tokens import CallerText, ControlTokens, read_control_tokens, read_special_ids
from .fit.form import split_head, with_tools
from .fit.trials import Fitting, RenderedText
from .history import Message
from .messages import REASONING
from .parts import media_parts, unreadable
from .template_traits import ThinkingSwitch, check_variables, find_thinking_switch, find_turn_end, read_variables
from .tokenizing import Tokenizing, Tools, encode_within

_OTHER = "\N{MIDDLE DOT}"  # a message that hardly any begins with
_WORD = "pencil"
QUICK_SECONDS, MAX_QUICK_CHARACTERS = 0.02, 50_000  # several times what templates take, and make
PROMPT_END_TOKENS = 32  # more than the opening of an assistant's turn takes


@dataclass(frozen=True, slots=True)
class Conversation:
    """Contents that a prompt is rendered from.

    Attributes:
        messages: as `template_messages` makes them.
        variables: what else the template reads.
        tools: what the template tells the model that it may call.
        special: special tokens that the caller's strings spell become such tokens; otherwise all of what a caller sends
            is tokenised as text.
    """

    messages: list[Message]
    variables: dict[str, object] = field(default_factory=dict[str, object])
    tools: Tools = None
    special: bool = False


class ChatTokenizer:
    """A model's chat template, and text to tokens and back. May be used from several threads.

    Args:
        model: the adapter's tokenizer for it, such as `TextModel.text`.
        calls: how the model writes calls, for a template that does not show them; None: in the plain form.
        budget: of what is found out by rendering; None: a new one.
    """

    def __init__(self, model: Tokenizing, calls: CallFormat | None = None, budget: Budget | None = None) -> None:
        self.model, self._budget = model, budget or Budget()
        self._calls = calls or PLAIN
        self._tokenizer = tokenizer = model.tokenizer
        self.token_bytes = TokenBytes(tokenizer)
        self._accepted: dict[tuple[str, str], bool] = {}
        self.encode_all = getattr(model, "encode_all", lambda texts: list(map(model.encode, texts)))

    @property
    def media_kinds(self) -> frozenset[MediaKind]:
        """Kinds of media that the model reads, apart from text."""
        return self.model.media_kinds

    def spans(self, prompt: Sequence[int], messages: list[Message]) -> list[MediaSpan]:
        """Find the items of a conversation in what was rendered of it.

        Raises:
            BadRequest: the template leaves some out, or a text spells what stands for one.
        """
        parts = media_parts(messages)
        if not parts:
            return []
        try:
            return self.model.spans(prompt, [part.media for part in parts])
        except SpelledPlaceholder as error:
            text = f"Invalid 'allow_special_tokens': {error}. Take it out of the text, or leave the field out."
            raise BadRequest.invalid("allow_special_tokens", text) from None
        except ValueError as error:
            raise unreadable(parts[0].media.kind, parts[0].path, error) from error

    def encode(self, text: str) -> list[int]:
        """A plain prompt, with the beginning-of-sequence token where the tokenizer adds one.

        Raises:
            UnicodeEncodeError: the text holds lone surrogates.
        """
        text.encode()
        return self.model.encode(text)

    def encode_bare(self, text: str) -> list[int]:
        """A text's tokens alone: no beginning-of-sequence token."""
        return self.model.encode(text, add_special_tokens=False)

    def encode_text(self, text: str) -> list[int]:
        """A caller's text alone, in which nothing is a control token."""
        tokens = self.control_tokens
        if not tokens.occur_in(text):
            return self.encode_bare(text)
        caller = CallerText(tokens)
        return caller.clean(self.encode_bare(caller.restore(caller.mask(text))))

    def encode_marker(self, text: str) -> list[int]:
        """A text such as `</think>` as it is inside an output: see `encode_within`."""
        if self.token_bytes.kind == "byte_level":
            return self.encode_bare(text)
        return encode_within(self.encode_bare, text)

    @panics_are_errors
    def decode(self, ids: Sequence[int]) -> str:
        """The text of a prompt given as token ids."""
        return str(self._tokenizer.decode(list(ids)))

    def detokenizer(self, *, continuing: bool = False) -> Detokenizer:
        """A fresh streaming detokenizer.

        Args:
            continuing: the text continues the end of a prompt, and keeps the space that it begins with.
        """
        if self.token_bytes.kind != "other":
            return ByteDetokenizer(self.token_bytes, strips_space=not continuing and self.token_bytes.strips_space)
        detokenizer = LibraryDetokenizer(self._tokenizer.detokenizer)
        for token in self.encode_bare("a") if continuing else ():  # some drop the space that the first one begins with
            detokenizer.add_token(token)
        _ = detokenizer.last_segment
        return detokenizer

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Special tokens: those that the tokenizer itself leaves out with `skip_special_tokens`."""
        return read_special_ids(self._tokenizer)

    @cached_property
    def vocabulary_size(self) -> int:
        return len(self._tokenizer)

    @property
    def has_program(self) -> bool:
        """The chat template is a program of mlx-lm's, which knows its own variables only."""
        return getattr(self._tokenizer, "_chat_template", None) is not None

    @cached_property
    def template_source(self) -> str | None:
        """The chat template; None when it is a program, or there is none.

        Of several by name it is those that transformers picks: `tool_use` where there are tools, else `default`.
        """
        if self.has_program:
            return None  # mlx-lm's wrapper prefers its program to the template of the checkpoint
        template = getattr(self._tokenizer, "chat_template", None)
        if isinstance(template, dict):
            template = "\n".join(str(template[name]) for name in ("default", "tool_use") if name in template)
        return template if isinstance(template, str) else None

    @cached_property
    def template_variables(self) -> frozenset[str] | None:
        """Names that the chat template reads; None when it is a program whose variables cannot be listed."""
        return None if self.template_source is None else read_variables(self.template_source)

    @property
    def knows_developer(self) -> bool:
        """The template has a developer role."""
        return bool(self._tokenizer.has_chat_template) and self.fitting.without_tools.developer

    @cached_property
    def fitting(self) -> Fitting:
        """Forms of conversations that the template takes: found by rendering some, once for each template in the
        process.
        """
        program = getattr(self._tokenizer, "_chat_template", None)
        source = repr(getattr(self._tokenizer, "chat_template", None)).encode()
        key = type(self.model), bool(self.model.media_kinds), program or hashlib.sha256(source).digest()

        def render(messages: list[Message], variables: dict[str, object], tools: Tools) -> str:
            return self._rendered_text(self._fitted(messages), variables, tools)

        return Fitting(render, key, self._budget, self.knows("tools"))

    @cached_property
    def is_quick(self) -> bool:
        """A short conversation is rendered in little time, to a short text."""
        if not self._tokenizer.has_chat_template:
            return True

        def renders_quickly() -> bool:
            for _ in range(2):  # the first time it is compiled
                began = time.thread_time()
                text = self._text([{"role": "user", "content": _OTHER}])
            return time.thread_time() - began < QUICK_SECONDS and len(text) < MAX_QUICK_CHARACTERS

        return self._budget.find("how long it takes", renders_quickly, lambda: False)

    def prepare(self) -> None:
        """Find out now what the first conversation would wait for: some tenths of a second."""
        _ = self.control_tokens
        if self._tokenizer.has_chat_template:
            with contextlib.suppress(ImportError):  # which a conversation is told
                _ = self.fitting.without_tools, self.fitting.with_tools

    def knows(self, variable: str) -> bool:
        """True if the chat template reads this variable, as far as can be found out."""
        known = self.template_variables
        return known is None or variable in known

    def takes(self, variable: str, value: str) -> bool:
        """True if the chat template reads this variable and does not refuse this value of it, as some do by raising."""
        if not self.knows(variable) or not self._tokenizer.has_chat_template:
            return False
        if (variable, value) not in self._accepted:
            prompt_of = partial(self._prompt_of, [{"role": "user", "content": _OTHER}])
            self._accepted[variable, value] = self._budget.find(
                f"the effect of '{variable}'",
                lambda: prompt_of({variable: value}) is not None or prompt_of({}) is None,
                lambda: False,
            )
        return self._accepted[variable, value]

    @cached_property
    def thinking_switch(self) -> ThinkingSwitch | None:
        """Switch by which the chat template is told whether the model is to think; None: it cannot be told."""
        if not self._tokenizer.has_chat_template:
            return None
        find = partial(find_thinking_switch, self._prompt_of, self.knows)
        return self._budget.find("its switch of the reasoning", find, lambda: None)

    def turn_end(self, ends: Collection[int], added: Mapping[int, str], markers: Collection[int]) -> int | None:
        """The token with which the chat template ends answers, if it is none of the ends; see `find_turn_end`."""
        if not self._tokenizer.has_chat_template:
            return None
        prompt_of = partial(self._prompt_of, variables={})

        def find() -> int | None:
            try:
                return find_turn_end(prompt_of, self.encode_bare, self.decode, ends, added, markers)
            except (ImportError, PanicError):  # which each conversation is told
                return None

        return self._budget.find("what ends a turn", find, lambda: None)

    def _prompt_of(self, messages: list[Message], variables: Mapping[str, object]) -> str | None:
        """The text of a prompt; None where the template refuses it."""
        try:
            return self.decode(self._apply(Conversation(messages, dict(variables))))
        except BadRequest:
            return None

    def check_variables(self, names: Sequence[str], param: str) -> None:
        """Refuse template arguments that nothing would read; see `template_traits.check_variables`."""
        check_variables(self.template_variables, names, param)

    def render(self, conversation: Conversation, *, generation_prompt: bool = True) -> list[int]:
        """Prompt tokens for a conversation, up to the assistant's turn.

        Args:
            generation_prompt: end with what opens the assistant's turn.

        Raises:
            BadRequest: the model has no chat template, or the template refuses this conversation in the form that was
                found for it and in the plainest one.
        """
        if not self._tokenizer.has_chat_template:
            raise BadRequest.unsupported_value(
                "messages", "This model has no chat template. Use client.completions, or a model tuned for chat."
            )
        return self._apply(conversation, generation_prompt)

    def boundaries(self, prompt: Sequence[int], conversation: Conversation) -> list[int]:
        """Find where other prompts are likely to diverge from this one: after system prompt and tools, and before the
        assistant's turn. None for models that do not need to know, see `types.Prompt`.

        Args:
            prompt: what `render` made of the conversation.
        """
        if self.model.cuts_anywhere:
            return []
        found: set[int] = set()
        with contextlib.suppress(BadRequest):
            found.add(common_length(prompt, self._apply(conversation, False)))
        head, _ = split_head(conversation.messages)
        if head or conversation.tools:
            other = replace(conversation, messages=[*head, {"role": "user", "content": _OTHER}])
            with contextlib.suppress(BadRequest):
                found.add(common_length(prompt, self._apply(other, False)))
        return sorted(at for at in found if 0 < at < len(prompt))

    def _apply(self, conversation: Conversation, generation_prompt: bool = True) -> list[int]:
        """The conversation in the template's form; where it refuses that, in the plainest one, if that shows all."""
        messages, variables, tools = conversation.messages, conversation.variables, conversation.tools or None
        caller: CallerText | None = None
        if not conversation.special and self.control_tokens.occur_in(messages, variables, tools):
            caller = CallerText(self.control_tokens)
            messages = caller.mask_messages(self._with_reasoning_apart(messages))
            variables, tools = caller.mask(variables), caller.mask(tools)
        form = self.fitting.form(tools)
        if tools and self.fitting.with_tools is None:
            messages, tools = with_tools(messages, tools, self._calls), None
        media = [part.media for part in media_parts(messages)]
        first: Exception | None = None
        for attempt, simple in [(form, False), *([(form, True)] if tools else []), (form.plainest, True)]:
            seen = RenderedText(None if caller is None else caller.restore)
            restore = seen if caller is not None or attempt is not form else None
            check()
            try:
                read, given = attempt.variables(tools, simple=simple)
                ids = self.model.apply_chat_template(
                    self._fitted(attempt.fit(messages, self._calls)),
                    read | variables,
                    given,
                    generation_prompt,
                    restore,
                    media,
                )
            except (PanicError, ImportError, MemoryError):  # none of the messages' doing
                raise
            except Exception as error:  # templates raise what they like, TypeError from a filter included
                first = first or error
                continue
            if attempt is form or seen.holds(messages):
                return ids if caller is None else caller.clean(ids, media)
        text = f"This model's chat template does not accept these messages: {first}"
        raise BadRequest(text, param="messages", code="invalid_messages") from first

    def _fitted(self, messages: list[Message]) -> list[Message]:
        """Messages with the keys and parts that the template reads."""
        named = history.name_reasoning(messages, self._reasoning_names)
        return history.with_parts(named) if self.model.media_kinds and self._reads_parts_only else named

    def prompt_end(self, ids: Sequence[int]) -> str:
        """The text of a prompt's last tokens, special ones included: what a generation prompt ends with.

        It may begin in the middle of a word or of a character.
        """
        last = ids[-PROMPT_END_TOKENS:]
        if self.token_bytes.kind != "other":  # a tenth of the time that the tokenizer takes
            return self.token_bytes.joined(last).decode(errors="replace")
        return self.decode(last)

    @cached_property
    def control_tokens(self) -> ControlTokens:
        """Control tokens, which the caller's strings must not spell. Takes 0.2 s for 6,000 of them: better while a
        model loads.
        """
        tokenizer = self._tokenizer
        return ControlTokens(
            read_control_tokens(tokenizer, self.template_source),
            self.template_source,
            self.encode_bare,
            lambda token_id: str(tokenizer.convert_ids_to_tokens(token_id)),
            lambda token: self.vocabulary.get(token),
        )

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Tokens, as the vocabulary writes them, and their ids."""
        return dict(self._tokenizer.get_vocab())

    def _with_reasoning_apart(self, messages: list[Message]) -> list[Message]:
        """Answers that begin with a block of reasoning, which a template would look for in their content."""
        start, end = (getattr(self._tokenizer, name, None) for name in ("think_start", "think_end"))
        if not start or not end or end not in (self.template_source or ""):
            return messages
        return [history.reasoning_apart(message, start, end) for message in messages]

    @cached_property
    def _reasoning_names(self) -> tuple[str, ...]:
        """The keys of a message under which the template reads earlier reasoning."""
        source = self.template_source
        if source is None:
            return ("reasoning_content",)
        return tuple(name for name in REASONING if re.search(rf"[.'\"]{name}\b", source))

    @cached_property
    def _reads_parts_only(self) -> bool:
        """The template looks for parts, and passes over the text of a message that is a string, as SmolVLM's does."""
        one: list[Message] = [{"role": "user", "content": _WORD}]
        ways = one, history.with_parts(one)
        return self._budget.find(
            "how it reads parts", lambda: [_WORD in self._text(way) for way in ways] == [False, True], lambda: False
        )

    def _text(self, messages: list[Message]) -> str:
        try:
            return self._rendered_text(messages, {}, None)
        except (ImportError, MemoryError):
            raise
        except Exception:  # templates raise what they like
            return ""

    def _rendered_text(self, messages: list[Message], variables: dict[str, object], tools: Tools) -> str:
        """Render made-up messages with the template, without tokenising."""
        check()
        seen = RenderedText(lambda text: "")
        self.model.apply_chat_template(messages, variables, tools, True, seen)
        return seen.text
