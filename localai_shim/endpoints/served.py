"""The model that serves a request, as endpoints see it, and prompts for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..formats.markup import Markup
from ..grammar.compile import GrammarCompiler
from ..media import NO_SOURCES, MediaRules, ReadStored, media_keys
from ..prompt.history import Message
from ..prompt.parts import MediaCache, MediaReader
from ..prompt.template import ChatTokenizer
from ..speech import Transcribing
from ..types import Adapter, Prompt, Task
from ..vectors import Embedding, Reranking
from .fields import FieldCache


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Knowledge of endpoints about the model that serves a request."""

    name: str
    tokenizer: ChatTokenizer
    context_length: int | None
    eos_token_ids: frozenset[int]
    fingerprint: str
    markup: Markup
    grammars: GrammarCompiler
    generation_defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    """The model's generation_config.json."""
    request_defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    """Defaults that come with a model of Ollama: `system`, `stop`, `stop_token_ids`, `seed`, and penalties."""
    hidden_ids: frozenset[int] = frozenset()
    """Special tokens that are not text of an answer: all but the model's markers."""
    media_rules: MediaRules = NO_SOURCES
    """Sources from which this client's requests may take media."""
    media: MediaCache = field(default_factory=MediaCache)
    """Cache of what the model's processor made of the media that came last, for all clients."""
    tasks: Sequence[Task] = ("generate",)
    """Tasks that the model serves."""
    settings: Mapping[Task, object] = field(default_factory=dict[Task, object])
    """Settings for tasks that have some."""
    takes_any_token: bool = False
    """`logit_bias` may name tokens of other vocabularies: nothing is sampled, so it has no effect."""
    is_quick: bool = False
    """Making a short prompt takes some tenths of a millisecond."""
    adapter: Adapter | None = None
    """The LoRA adapter that requests of this model use."""
    hooks: Mapping[str, Callable[..., object]] = field(default_factory=dict[str, Callable[..., object]])
    """The client's functions that serve tools that OpenAI hosts."""
    field_cache: FieldCache = field(default_factory=FieldCache)
    """Fields of the last requests as they were read, for all clients."""

    @property
    def embedding(self) -> Embedding | None:
        """Settings for embedding texts; None: it embeds none."""
        found = self.settings.get("embed")
        return found if isinstance(found, Embedding) else None

    @property
    def reranking(self) -> Reranking | None:
        """Settings for scoring documents; None: it scores none."""
        found = self.settings.get("rerank")
        return found if isinstance(found, Reranking) else None

    @property
    def transcribing(self) -> Transcribing | None:
        """Settings of a Whisper model; None: it is none."""
        found = self.settings.get("transcribe")
        return found if isinstance(found, Transcribing) else None

    def prepare(self) -> None:
        """Find out what the first request would wait for.

        For a large vocabulary this holds the GIL for some tenths of a second: better now than during running streams.
        """
        _ = self.grammars.vocabulary.tokenizer
        self.tokenizer.prepare()

    def media_reader(self, stored: ReadStored | None = None, *, truncates: bool = False) -> MediaReader:
        """Reader of one request's media and files.

        Args:
            stored: reads uploaded files, see `MediaRules`; None: there are none.
            truncates: turns that do not fit are left out after that.
        """
        rules = replace(self.media_rules, stored=stored)
        return MediaReader(self.tokenizer.model, rules, self.media, self.context_length, truncates=truncates)

    def with_system(self, messages: list[Message]) -> list[Message]:
        """A conversation with the model's own system prompt, if it has one and the conversation begins with none."""
        system = self.request_defaults.get("system")
        if not isinstance(system, str) or (messages and messages[0]["role"] in ("system", "developer")):
            return messages
        return [{"role": "system", "content": system}, *messages]

    @property
    def max_new_tokens(self) -> int | None:
        """The most output tokens by the model's own defaults; None: they have no limit."""
        given = self.generation_defaults.get("max_new_tokens")
        return given if isinstance(given, int) and given > 0 else None


def make_prompt(
    tokens: Sequence[int],
    messages: list[Message],
    model: ServedModel,
    *,
    boundaries: Sequence[int],
    salt: str | None,
    top_logprobs: int | None = None,
) -> Prompt:
    """Make a prompt for the engine from a conversation.

    Args:
        tokens: what was rendered of the messages.
        boundaries: see `Prompt`; one within an item moves to where that begins.
        salt, top_logprobs: see `Prompt`.

    Raises:
        BadRequest: the template leaves media out.
    """
    spans = model.tokenizer.spans(tokens, messages)
    moved = {next((span.start for span in spans if span.start < at < span.stop), at) for at in boundaries}
    return Prompt(
        tokens,
        keys=media_keys(tokens, spans) if spans else None,
        boundaries=sorted(moved - {0}),
        salt=salt,
        top_logprobs=top_logprobs,
        media=spans,
        adapter=model.adapter,
    )
