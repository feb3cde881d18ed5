"""Images, videos, sounds and files among a message's parts: what stands for them in the messages that templates read.

A file is its text, and images of a PDF's pages for models that see. All other items of a request begin to be decoded
as their parts are met, on a few spare threads or on the thread that needs them, whichever is there first. Before that
an item's size tells how many tokens it takes at least: what cannot fit into the context is refused, or left out where
that is asked for, and nothing of it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest
from ..media import Media, MediaKind, MediaRules, MediaSize, ProcessedMedia, UnreadError
from ..threads import deadline
from ..threads.cache import LRUCache
from ..threads.system import Lock
from ..threads.workers import Begun
from .history import Message
from .media import FILES, PARTS
from .tokenizing import Tokenizing

if TYPE_CHECKING:
    from ..documents import Document
    from .media.files import FileSource

CACHE_BYTES = 256 * 2**20
"""Of what processors made, for each model."""
KINDS = {name: kind for name, (kind, _) in PARTS.items()}
"""Types of parts that are not text."""
_UNREAD: Any = None  # what models get that look at no data
_PLURALS: dict[MediaKind, str] = {"image": "images", "video": "video", "audio": "audio"}


class MediaPart(dict[str, str]):
    """A part of a template's message that stands for one item: `{"type": "image"}`.

    Args:
        kind: of the item.
        path: the field of the request that it came from.
        read: waits for the item, as the model reads it.
    """

    def __init__(self, kind: MediaKind, path: str, read: Callable[[], ProcessedMedia]) -> None:
        super().__init__(type=kind)
        self.path, self._read = path, read

    @property
    def media(self) -> ProcessedMedia:
        """The item, as the model reads it.

        Raises:
            BadRequest: it cannot be read.
            UnreadError: its content, or another item's, is still to be read.
        """
        return self._read()


class FileParts(list[str | MediaPart]):
    """Text of a file, and images of its pages."""


Part = Mapping[str, object]
"""A part of a request's content, or of a stored item's."""
ReadPart = Callable[[Part, str], MediaPart | FileParts]
"""(a part of one of the types in `KINDS` or `FILES`, its path) -> what stands for it.

Raises BadRequest where the model cannot read it.
"""


def no_media(part: Part, path: str) -> MediaPart:
    """`ReadPart` of models that read text."""
    raise _refused(part, path, frozenset())


def joined(parts: Sequence[str | MediaPart | FileParts]) -> str | list[dict[str, str]]:
    """The content of a message: one text, or the parts that templates read where some are not text."""
    flat: list[str | MediaPart] = []
    for i, part in enumerate(parts):
        if isinstance(part, FileParts):  # with empty lines around it
            flat += [*(("\n\n",) if i else ()), *part, *(("\n\n",) if part is not parts[-1] else ())]
        else:
            flat.append(part)
    if not any(isinstance(part, MediaPart) for part in flat):
        return "".join(part for part in flat if isinstance(part, str))
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in flat]


def media_parts(messages: Sequence[Message]) -> list[MediaPart]:
    """The items in a conversation, in their order."""
    contents = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    return [part for content in contents for part in content if isinstance(part, MediaPart)]


class MediaCache(LRUCache[ProcessedMedia]):
    """Cache of what a model's processor made of the items that came last.

    Args:
        budget: most bytes.
    """

    def __init__(self, budget: int = CACHE_BYTES) -> None:
        super().__init__(budget, _size)


class MediaReader:
    """The `ReadPart` of one request. Each item is decoded and processed once, and begins to be as soon as it is met.

    Args:
        processor: the model's.
        rules: where items may come from.
        cache: what the processor made for earlier requests.
        context_length: the most tokens of the prompt; None: any number.
        truncates: what does not fit is left out later; otherwise it is refused.
    """

    def __init__(
        self,
        processor: Tokenizing,
        rules: MediaRules,
        cache: MediaCache,
        context_length: int | None = None,
        *,
        truncates: bool = False,
    ) -> None:
        self._processor, self._rules, self._cache = processor, rules, cache
        self._space = None if context_length is None else _Space(processor, context_length, truncates)
        self._decodes = getattr(processor, "decodes_media", True)  # a scripted model looks at no data
        self._read: dict[int, tuple[Part, MediaPart | FileParts]] = {}  # by the part's id, its own while it is held

    def __call__(self, part: Part, path: str) -> MediaPart | FileParts:
        known = self._read.get(id(part))
        if known is None:
            known = self._read[id(part)] = part, self._made(part, path)
        return known[1]

    def check_read(self) -> None:
        """Find out whether all files have been read; media are asked for their content later.

        Raises:
            UnreadError: files or URLs are still to be read.
        """
        if self._rules.contents is not None and self._rules.contents.unread:
            raise UnreadError

    def _made(self, part: Part, path: str) -> MediaPart | FileParts:
        if part["type"] in FILES:
            return self._file(part, path)
        kind, kinds = KINDS.get(str(part["type"])), self._processor.media_kinds
        if kind is None or kind not in kinds:
            raise _refused(part, path, kinds)
        return MediaPart(kind, path, self._begun(part, path))

    def _file(self, part: Part, path: str) -> FileParts:
        from .media.files import open_file

        deadline.check()
        source = open_file(part, path, self._rules)
        if source is None:
            return FileParts()  # see `check_read`
        if not self._decodes:
            return FileParts([_scripted_text(source)])
        document = source.read()
        if document.is_pdf and "image" in self._processor.media_kinds:
            return self._with_images(source, document)
        if not document.has_text:
            raise source.refused(_SCANNED if document.is_pdf else "it contains no text")
        return FileParts([_file_text(source, document.text)])

    def _with_images(self, source: FileSource, document: Document) -> FileParts:
        """The text of a PDF, and images of its first pages."""
        from .media.files import MAX_DRAWN_PAGES

        sizes = source.image_sizes()
        if len(document.pages) > len(sizes) and not document.has_text:
            raise source.refused(
                f"it has {len(document.pages)} pages without text, and images of at most {MAX_DRAWN_PAGES} are read; "
                "split the file"
            )
        made = FileParts([_file_text(source, document.text)])
        for i, (height, width) in enumerate(sizes):
            key, draw = source.image_key(i), partial(_page, source, i)
            drawn = partial(_processed, self._processor, self._cache, key, "image", source.path, draw)
            if self._space is not None:
                try:
                    self._space(MediaSize("image", height, width, detail=source.detail), source.path, page=i)
                except _TooLargeError as error:
                    drawn = partial(_same, error.made)
            made += [
                f"\n[page {i + 1} of {len(document.pages)}]\n",
                MediaPart("image", source.path, Begun(drawn).result),
            ]
        return made

    def _begun(self, part: Part, path: str) -> Callable[[], ProcessedMedia]:
        from .media.parts import open_media

        deadline.check()
        processor, contents, decodes = self._processor, self._rules.contents, self._decodes
        try:
            source = open_media(part, path, self._rules, self._space if decodes else None)
        except _TooLargeError as error:
            return partial(_same, error.made)
        if contents is not None and contents.unread:
            return _unread
        if not decodes:
            return partial(_same, processor.process(Media(source.kind, _UNREAD, source.path, source.detail)))
        process = partial(_processed, processor, self._cache, source.key, source.kind, source.path, source.decode)
        return Begun(process).result


def _unread() -> ProcessedMedia:
    raise UnreadError


def _processed(
    processor: Tokenizing, cache: MediaCache, key: str, kind: MediaKind, path: str, decode: Callable[[], Media]
) -> ProcessedMedia:
    """An item, as the model reads it."""

    def make() -> ProcessedMedia:
        deadline.check()
        try:
            return processor.process(decode())
        except ValueError as error:
            raise unreadable(kind, path, error) from error

    try:
        return cache.get_or_make(key, make)
    except _TooLargeError as error:
        return error.made


def _page(source: FileSource, page: int) -> Media:
    """A page of a PDF."""
    return Media("image", source.draw(page), source.path, source.detail)


def _same(made: ProcessedMedia) -> ProcessedMedia:
    return made


def _file_text(source: FileSource, text: str) -> str:
    """A file in a prompt, in the form that DeepSeek publishes for its models."""
    return f"[file name]: {source.shown_name}\n[file content begin]\n{text}\n[file content end]"


def _scripted_text(source: FileSource) -> str:
    """A file in the prompt of a scripted model: its content may be made up."""
    try:
        return _file_text(source, source.read().text)
    except BadRequest:
        return _file_text(source, "")


class _TooLargeError(BadRequest):
    """An item that fits into no prompt, with what stands for it until its turn is left out."""

    def __init__(self, made: ProcessedMedia, path: str) -> None:
        super().__init__(f"Invalid '{path}': it takes {len(made.tokens)} tokens.", param=path)
        self.made = made


class _Space:
    """Tokens that the items of one request take at least, by their sizes. It is called as a `Fits`."""

    def __init__(self, processor: Tokenizing, context_length: int, truncates: bool) -> None:
        self._processor, self._limit, self._truncates = processor, context_length, truncates
        self._lock = Lock()
        self._taken: dict[tuple[str, int], int] = {}

    def __call__(self, size: MediaSize, path: str, page: int = 0) -> None:
        unread = self._processor.unread(size)
        if unread is None:
            return
        tokens = len(unread.tokens)
        if self._truncates:
            if tokens > self._limit:
                raise _TooLargeError(unread, path)
            return
        with self._lock:
            self._taken[path, page] = tokens
            total = sum(self._taken.values())
        if total > self._limit:
            what = f"this {size.kind} of {size} takes {tokens} tokens"
            if total > tokens:
                what += f", {total} with what is before it"
            raise BadRequest.too_many_tokens(
                path,
                f"This model's maximum context length is {self._limit} tokens. However, '{path}': {what}. Please scale "
                "it down, or ask for less detail.",
            )


def unreadable(kind: MediaKind, path: str, error: ValueError) -> BadRequest:
    """The refusal of an item that a model's processor refuses."""
    code = "invalid_image" if kind == "image" else "invalid_value"
    return BadRequest.refused(path, f"this model cannot read it: {str(error).rstrip('.')}", code)


def _size(media: ProcessedMedia) -> int:
    return sum(array.nbytes for array in media.inputs.values()) + 64 * len(media.tokens)


def _refused(part: Part, path: str, kinds: Collection[MediaKind]) -> BadRequest:
    """Says which parts the model takes."""
    given = str(part["type"])
    *most, last = ["text", *(plural for kind, plural in _PLURALS.items() if kind in kinds)]
    taken = f"{', '.join(most)} and {last}" if most else "text only"
    if given in FILES:
        why = f"content parts of type '{given}' are not supported here"
    else:
        why = f"content parts of type '{given}' need a model that reads {_PLURALS[KINDS[given]]}"
        why += _SEEING if KINDS[given] == "image" else ""
    return BadRequest.unsupported_value(f"{path}.type", f"This model reads {taken}; {why}.")


_SCANNED = (
    "it contains no text: its pages are images, as in scans, and this model reads text only. Load a model that reads "
    "images, or recognize the text first"
)
_SEEING = ". Load one, such as 'mlx-community/Qwen2.5-VL-7B-Instruct-4bit', or 'builtin:vision' for demos and tests"
