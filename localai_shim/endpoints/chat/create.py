"""POST /chat/completions.

Shapes follow OpenAI's API reference (https://platform.openai.com/docs/api-reference/chat) and the SDK's types.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from openai.types.chat import ChatCompletion

from ...errors import BadRequest
from ...prompt.history import Message
from ...prompt.messages import template_messages
from ...prompt.objects import with_data_urls
from ...prompt.parts import media_parts
from ...prompt.template import Conversation
from ...state.store import Store
from ...types import Prompt
from .. import request_fields
from ..answer.format import read_answer_format
from ..answer.plan import AnswerPlan, Asked
from ..answer.thinking import EFFORTS, read_thinking
from ..answer.tools import read_tool_plan
from ..answer_fields import Extras, PredictionCounts, read_extras
from ..fields import Fields, as_array
from ..files import read_whole
from ..hosted.hooks import check_hooks
from ..hosted.kind import HostedTool
from ..hosted.room import answer_room
from ..hosted.web_search import read_search
from ..served import ServedModel, make_prompt
from ..token_fields import most_tokens, read_truncation, truncated, without_oldest
from ..turn import Turn
from .assembler import ChatAssembler
from .searching import Continuation, SearchAssembler, Searching

TEXTS = ("messages", "prediction")
DIFFER = ("messages", "metadata", *request_fields.OWN)
"""The fields in which requests differ whose others are read once."""
REFUSED = {
    "audio": "Local models answer in text only.",
    "moderation": "There is no moderation model in this process.",
}


def prepare(body: Mapping[str, object], model: ServedModel, store: Callable[[], Store]) -> Turn:
    """Validate a request body and render its prompt.

    Raises:
        BadRequest: with the field, its value and what to do.
    """
    chat = model.field_cache.get(body, DIFFER, partial(_read, model=model))
    fields = Fields(body)
    given, metadata = fields.require("messages"), request_fields.read_metadata(fields)
    developer = model.tokenizer.knows_developer
    reader = model.media_reader(partial(read_whole, store), truncates=chat.truncation[0] is not None)
    messages = model.with_system(template_messages(given, knows_developer=developer, read_part=reader))
    reader.check_read()
    check_hooks(chat.asked.tools.hosted.values(), model.hooks, special=chat.asked.special)
    generation = request_fields.read_own(fields, chat.generation, model)
    prompt = chat.prompt(messages, model, generation.salt)
    answer = chat.answer(model, prompt.tokens)
    logprobs = generation.sampling.top_logprobs is not None
    assembler = (SearchAssembler if chat.search else ChatAssembler)(
        model=model,
        parsers=[answer.parser(generation.limits, with_tokens=logprobs) for _ in range(chat.n)],
        prompt=prompt,
        logprobs=logprobs,
        metadata=metadata,
        legacy=chat.asked.tools.legacy,
        keep=partial(_keep, given, store) if chat.store else None,
        extras=chat.extras,
        predicted=PredictionCounts(generation.prediction, chat.n),
    )
    if isinstance(assembler, SearchAssembler):
        assert chat.search is not None
        later = _LaterRounds(chat.later(), messages, model, generation)
        assembler.use(Searching(chat.search, model.hooks[chat.search.name], later.go_on, later.fits))
    requests = answer.requests(prompt, chat.n, generation, param="messages")
    return Turn(assembler, requests, chat.stream)


@dataclass(frozen=True, slots=True)
class _LaterRounds:
    """Rounds of a request's choices behind the first one."""

    chat: _ChatFields
    messages: list[Message]
    model: ServedModel
    generation: request_fields.Generation

    def go_on(self, more: list[Message], generated: int, choice: int) -> Continuation | None:
        """The next round of a choice; see `Searching.go_on`."""
        generation, limits = self.generation, self.generation.limits
        if limits.max_tokens is not None:
            left = limits.max_tokens - generated
            if left <= 0:
                return None
            limits = replace(limits, max_tokens=left, min_tokens=min(limits.min_tokens, left))
        prompt = self.chat.prompt([*self.messages, *more], self.model, generation.salt)
        answer = self.chat.answer(self.model, prompt.tokens)
        generation = replace(generation, limits=limits)
        work = answer.requests(prompt, choice + 1, generation, param="messages")[choice]  # with the choice's own seed
        parser = answer.parser(limits, with_tokens=generation.sampling.top_logprobs is not None)
        return Continuation(prompt, parser, work)

    def fits(self, more: list[Message]) -> bool:
        """The context has room for more messages; see `Searching.fits`."""
        length = self.model.context_length
        if length is None:
            return True
        room = answer_room(length, self.generation.limits.max_tokens)
        return len(self.chat.prompt([*self.messages, *more], self.model, None).tokens) + room <= length


@dataclass(frozen=True, slots=True)
class _ChatFields:
    """Settings of a request, without the fields that differ. Requests with the same ones share them, unchanged."""

    stream: bool
    n: int
    store: bool
    generation: request_fields.Generation
    extras: Extras
    truncation: tuple[int | None, bool]
    asked: Asked
    opens_turn: bool
    """The prompt ends with what opens an assistant's turn."""
    continues: bool
    """The answer continues the last message."""
    search: HostedTool | None
    """The search that it may make."""

    def later(self) -> _ChatFields:
        """The same for the rounds behind the first one."""
        later = self.asked.tools.later
        assert later is not None
        return replace(
            self,
            asked=replace(self.asked, tools=later(False)),
            opens_turn=True,
            extras=replace(self.extras, prompt_logprobs=None),
        )

    def prompt(self, messages: list[Message], model: ServedModel, salt: str | None) -> Prompt:
        """The rendered conversation, truncated as the request asks; `salt` as in `Prompt`."""
        generation = self.generation
        conversation = self.asked.conversation(messages, {"continue_final_message": True} if self.continues else None)
        whole = model.tokenizer.render(conversation, generation_prompt=self.opens_turn)
        tokens = truncated(whole, self.truncation, model.context_length, generation.limits.max_tokens)
        if tokens is not whole and media_parts(messages):
            conversation, tokens = self._without_oldest(model, conversation)
            whole = tokens
        boundaries = model.tokenizer.boundaries(tokens, conversation) if tokens is whole else ()
        top, messages = self.extras.prompt_logprobs, conversation.messages
        return make_prompt(tokens, messages, model, boundaries=boundaries, salt=salt, top_logprobs=top)

    def _without_oldest(self, model: ServedModel, conversation: Conversation) -> tuple[Conversation, list[int]]:
        """A truncated conversation with media, in which nothing may be cut in two: whole turns are left out."""
        messages = conversation.messages
        most = most_tokens(self.truncation, model.context_length, self.generation.limits.max_tokens)
        head = list(itertools.takewhile(lambda message: message["role"] in ("system", "developer"), messages))

        def make(start: int) -> tuple[Conversation, list[int]]:
            left = replace(conversation, messages=[*head, *messages[start:]])
            return left, model.tokenizer.render(left, generation_prompt=self.opens_turn)

        starts = [i for i in range(len(head) + 1, len(messages)) if messages[i]["role"] == "user"]
        found = without_oldest(starts, make, lambda made: most is None or len(made[1]) <= most)
        if found is None or not self.truncation[1]:
            raise BadRequest.invalid(
                "truncate_prompt_tokens",
                f"The prompt cannot be truncated to {most} tokens: images, video and audio are not cut in two, so that "
                "only whole turns are left out, the oldest first, and the last one is longer than that. Allow more "
                "tokens, or pass truncation_side='left'.",
            )
        return found

    def answer(self, model: ServedModel, tokens: list[int]) -> AnswerPlan:
        """Plan of the answer to a prompt of these tokens."""
        end = _open_end(tokens, model) if self.continues else model.tokenizer.prompt_end(tokens)
        return AnswerPlan(model, self.asked, end, continuing=self.continues)


def _read(body: Mapping[str, object], model: ServedModel) -> _ChatFields:
    """Read a request's fields, without those that differ."""
    fields = Fields(body)
    fields.string("model")
    fields.refuse(REFUSED)
    opens_turn, continues = _read_ending(fields, model)
    variables = request_fields.read_template_variables(
        fields, model, fields.choice("verbosity", request_fields.VERBOSITIES)
    )
    search = read_search(fields)
    if search is not None and continues:
        raise BadRequest.invalid(
            "web_search_options", "'web_search_options' and 'continue_final_message' cannot be combined: leave one out."
        )
    tools = read_tool_plan(fields, model, search)
    format = read_answer_format(fields, fields.get("response_format"))
    thinking = read_thinking(fields, variables, model, fields.choice("reasoning_effort", EFFORTS))
    stream = fields.boolean("stream") or False
    top_logprobs = _read_top_logprobs(fields)
    _read_without_effect(fields)
    read = _ChatFields(
        stream=stream,
        n=fields.integer("n", 1, 128) or 1,
        store=fields.boolean("store") or False,
        generation=request_fields.read_generation(
            fields, model, _read_max_tokens(fields, model), top_logprobs=top_logprobs
        ),
        extras=read_extras(fields, stream, reasoning=fields.boolean("include_reasoning") is not False),
        truncation=read_truncation(fields),
        asked=Asked(tools, format, thinking, request_fields.read_allow_special_tokens(fields)),
        opens_turn=opens_turn,
        continues=continues,
        search=search,
    )
    fields.finish(DIFFER)
    return read


def _keep(messages: object, store: Callable[[], Store], completion: ChatCompletion) -> None:
    """Store a completion with its messages."""
    from .stored import save_completion

    save_completion(store(), completion.to_dict(mode="json"), with_data_urls(messages, "messages"))


def _read_top_logprobs(fields: Fields) -> int | None:
    """`logprobs` and `top_logprobs`; None: there are to be no logprobs."""
    logprobs = fields.boolean("logprobs") or False
    top = fields.integer("top_logprobs", 0, 20)
    if top is not None and not logprobs:
        raise BadRequest.invalid(
            "top_logprobs", "Invalid value for 'top_logprobs': 'logprobs' must be true when 'top_logprobs' is given."
        )
    return top or 0 if logprobs else None


def _read_max_tokens(fields: Fields, model: ServedModel) -> int | None:
    if fields.has("max_tokens") and fields.has("max_completion_tokens"):
        raise BadRequest(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", param="max_tokens"
        )
    old = request_fields.read_max_tokens(fields, "max_tokens", model)
    new = request_fields.read_max_tokens(fields, "max_completion_tokens", model)
    return next((given for given in (new, old) if given is not None), model.max_new_tokens)


def _read_ending(fields: Fields, model: ServedModel) -> tuple[bool, bool]:
    """vLLM's `add_generation_prompt` and `continue_final_message`: whether the prompt ends with a turn's
    opening, and whether it ends inside its last message.
    """
    adds, continues = fields.boolean("add_generation_prompt"), fields.boolean("continue_final_message") or False
    if continues and adds:
        raise BadRequest.invalid(
            "continue_final_message",
            "'continue_final_message' and 'add_generation_prompt' cannot both be true: an answer either continues the "
            "last message or is a new message.",
        )
    if continues and model.tokenizer.has_program:
        raise BadRequest.unsupported(
            "continue_final_message", "This model's chat template cannot leave a message open."
        )
    return not continues and adds is not False, continues


def _open_end(tokens: list[int], model: ServedModel) -> str:
    """The end of a prompt whose last message is continued: it says whether it ends inside reasoning."""
    text = model.tokenizer.decode(tokens)
    if model.markup.channels is not None:
        return text
    thought = model.markup.thought
    if thought is not None and text.rfind(thought.start) > text.rfind(thought.end):
        return thought.start
    return text[-1:]


def _read_without_effect(fields: Fields) -> None:
    """Check fields that cannot change the answer of a local model."""
    fields.choice("service_tier", request_fields.SERVICE_TIERS)
    given = as_array("modalities", fields.get("modalities", ["text"]), "an array of strings")
    if "audio" in given:
        raise BadRequest.unsupported("modalities", "Local models answer in text only; leave it out or pass ['text'].")
    if list(given) != ["text"]:
        raise BadRequest.invalid("modalities", "Invalid value for 'modalities': expected ['text'].")
