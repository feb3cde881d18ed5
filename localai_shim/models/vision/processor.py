"""The caller's side of models that see and hear: processors, and the places of media in a prompt."""

from __future__ import annotations

import copy
import hashlib
import inspect
import itertools
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...media import Detail, Media, MediaKind, MediaSize, MediaSpan, ProcessedMedia, SpelledPlaceholder
from ...threads.panics import is_shortage
from ...types import Json
from ..text import Restore, TextTokenizer, Tools, correct_decoder
from .media_tokens import least_tokens
from .pixels import Levels, Shown
from .threaded_processor import OneAtATime, without_mlx

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from PIL.Image import Image
    from transformers import FeatureExtractionMixin, ImageProcessingMixin, ProcessorMixin

LOW_DETAIL_PIXELS = 512  # a side of what `detail="low"` leaves of an image, as OpenAI has it
# Not what a tower reads.
_OF_TEXT = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "special_tokens_mask"}
_OF_TEXT |= {"labels", "seq_lens"}
_KINDS: tuple[MediaKind, ...] = ("image", "video", "audio")
# In what a caller wrote and would pass for a placeholder, behind its first character; with a number, in the place of an
# item until the caller's text is whole again. Random, so that no caller can write it; see `CallerText`.
_GUARD = "7" + "".join(secrets.choice("012345689") for _ in range(20))
_PLACE = re.compile(rf"{_GUARD}(\d{{7}})")
_FIRST = "<image_id>0</image_id>"
_NARROW = "it is too narrow for its length; cut it, or put something beside it"
_PLAINLY = {"Exceed pos emb": _NARROW, "height and width must be > 0": _NARROW}
"""Errors of processors, with what they mean."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Placeholder for an item of one kind."""

    text: str
    """In a rendered prompt, and in what the processor reads."""
    ids: tuple[int, ...]
    """Of the tokens that features replace: the first of these that the processor makes."""
    since: int | None = None
    """And those from this id on, which have other embeddings with such an item."""


class MediaProcessor:
    """A checkpoint's processor, for one item at a time; may be called from any thread.

    Args:
        processor: mlx-vlm's or transformers'. It has no other user, nor has its tokenizer.
        placeholders: of the kinds that the model reads.
        bare: of what the processor makes of a placeholder, only the tokens that features replace belong to the item.
        in_a_row: parts of an image, whose sizes can differ, are given to the model one after another in one array.
    """

    def __init__(
        self,
        processor: ProcessorMixin,
        placeholders: Mapping[MediaKind, Placeholder],
        *,
        bare: bool = False,
        in_a_row: bool = False,
    ) -> None:
        self._processor = without_mlx(processor)
        self.placeholders = dict(placeholders)
        self._bare, self._in_a_row = bare, in_a_row
        self._tokenizer = getattr(processor, "tokenizer", processor)
        correct_decoder(self._tokenizer)
        if self._tokenizer is not processor:
            processor.tokenizer = self._tokenizer = OneAtATime(self._tokenizer)

    def __call__(self, media: Media) -> ProcessedMedia:
        """Process an item for the model's tower and its prompt.

        Raises:
            ValueError: the model does not read this kind, or the processor refuses this one.
        """
        if media.kind not in self.placeholders:
            kinds = ", ".join(kind for kind in _KINDS if kind in self.placeholders) or "text"
            raise ValueError(f"this model does not read {media.kind}; it reads {kinds}")
        place = self.placeholders[media.kind]
        try:
            made = self._run(media, place.text)
            if self._in_a_row:
                made["pixel_values"] = np.concatenate(made["pixel_values"][0], axis=-1)[None]  # type: ignore[index]
            inputs = {name: array for name, value in made.items() if (array := _numbers(name, value)) is not None}
        except Exception as error:  # processors raise what they like
            if is_shortage(error):
                raise
            why = _PLAINLY.get(str(error), error)
            raise ValueError(f"the model's processor refuses this {media.kind}: {why}") from error
        # Some write negative ids, for what is no text.
        ids = [i if i >= 0 else place.ids[0] for i in np.asarray(made["input_ids"]).reshape(-1).tolist()]
        tokens, expansion = self._expansion(ids, place.ids)
        if not expansion:
            raise ValueError(f"the model's processor has no place for this {media.kind}")
        if "images" in inputs:  # as some name what models read as this
            inputs["pixel_values"] = inputs.pop("images")
        if "images_seq_mask" in inputs:
            _set_deepseek(inputs, tokens, place)
        for array in inputs.values():
            array.flags.writeable = False
        return ProcessedMedia(media.kind, _digest(media, inputs, tokens), inputs, expansion, tokens)

    def unread(self, size: MediaSize) -> ProcessedMedia | None:
        """An item of this size without its data, with the tokens that it takes at least; None: that is not known."""
        processor = self._with_limits(size.detail, size.height * size.width)
        count = least_tokens(processor, size) if size.kind in self.placeholders else 0
        if not count:
            return None
        tokens = [self.placeholders[size.kind].ids[0]] * count
        return ProcessedMedia(size.kind, 1, {}, self._text(tokens), tokens)

    def _run(self, media: Media, text: str) -> dict[str, object]:
        if media.kind == "image":
            processor = self._with_limits(media.detail, media.data.shape[0] * media.data.shape[1])
            picture = Shown(media.data)
            if media.detail == "low":
                picture.thumbnail((LOW_DETAIL_PIXELS, LOW_DETAIL_PIXELS))
            _check_sides(picture, getattr(processor, "image_processor", None))
            return dict(processor(images=[picture], text=[text], return_tensors="np"))
        if media.kind == "video":
            frames = np.ascontiguousarray(media.data.transpose(0, 3, 1, 2))
            rate = {} if media.rate is None else {"fps": media.rate}
            return dict(self._processor(videos=[frames], text=[text], **rate))
        extractor = self._processor.feature_extractor
        _check_length(media, extractor)
        samples = _resampled(media.data, media.rate, extractor.sampling_rate)
        return dict(self._processor(audio=[samples], text=[text]))

    def _with_limits(self, detail: Detail, pixels: int) -> ProcessorMixin:
        """The processor, or a copy of it with what a detail makes of the limits of its image processor."""
        whole = self._processor
        processor = getattr(whole, "image_processor", whole)
        changes: dict[str, object] = {}
        if detail == "low":  # the picture is made smaller before, and is not to be cut into tiles
            changes = {"do_image_splitting": False, "do_dynamic_preprocess": False}
        if detail == "original":
            pixels *= getattr(processor, "temporal_patch_size", 1)  # some count an image's copies in time as well
            most = getattr(processor, "max_pixels", None)
            size = getattr(processor, "size", None) if hasattr(processor, "merge_size") else None
            if isinstance(most, int):
                changes = {"max_pixels": max(most, pixels)}
            sizes = {} if size is None or isinstance(size, tuple | list | int) else dict(size)
            if "longest_edge" in sizes:
                # transformers' processors of this kind: "edges" are numbers of pixels there
                changes["size"] = {**sizes, "longest_edge": max(sizes["longest_edge"], pixels)}
        changes = {name: value for name, value in changes.items() if hasattr(processor, name)}
        if not changes:
            return whole
        changed = copy.copy(processor)
        vars(changed).update(changes)
        if processor is whole:
            return changed
        whole = copy.copy(whole)
        whole.image_processor = changed
        return whole

    def _expansion(self, ids: list[int], places: Sequence[int]) -> tuple[list[int], str]:
        """The tokens of an item, and their text; empty where none of them is a placeholder."""
        token = next((place for place in places if place in ids), None)
        if token is None:
            return [], ""
        if self._bare:
            ids = [i for i in ids if i == token]
        if ids[0] == getattr(self._tokenizer, "bos_token_id", None) != token:
            ids = ids[1:]
        if ids[-1] == getattr(self._tokenizer, "eos_token_id", None) != token:
            ids = ids[:-1]
        return ids, self._text(ids)

    def _text(self, ids: Sequence[int]) -> str:
        """Text that is tokenised to these ids: `decode` may put spaces between tokens added to a vocabulary."""
        added = self._tokenizer.added_tokens_decoder
        parts: list[str] = []
        for is_added, run in itertools.groupby(ids, added.__contains__):
            if is_added:
                parts += [str(added[i]) for i in run]
            else:
                parts.append(self._tokenizer.decode(list(run), clean_up_tokenization_spaces=False))
        return "".join(parts)

    def places(self, media: ProcessedMedia) -> npt.NDArray[np.int64]:
        """Places of the tokens of an item that its features replace."""
        place, tokens = self.placeholders[media.kind], np.asarray(media.tokens)
        found = tokens == next(token for token in place.ids if token in media.tokens)
        return np.flatnonzero(found if place.since is None else found | (tokens >= place.since))


class VisionTokenizer(TextTokenizer):
    """Form of `TextTokenizer` for a model that reads media.

    Args:
        tokenizer: mlx-lm's `TokenizerWrapper`.
        cuts_anywhere: rows' caches can be cut to any shorter length.
        processor: the checkpoint's.
        model_type: as mlx-vlm names it.
    """

    def __init__(
        self, tokenizer: TokenizerWrapper, cuts_anywhere: bool, processor: MediaProcessor, model_type: str
    ) -> None:
        super().__init__(tokenizer, cuts_anywhere)
        self._processor, self._model_type = processor, model_type
        self.media_kinds = frozenset(processor.placeholders)
        texts = [re.escape(place.text) for place in processor.placeholders.values()]
        self._placeholder = re.compile("|".join(sorted(texts, key=len, reverse=True)))

    def process(self, media: Media) -> ProcessedMedia:
        return self._processor(media)

    def unread(self, size: MediaSize) -> ProcessedMedia | None:
        return self._processor.unread(size)

    def spans(self, ids: Sequence[int], media: Sequence[ProcessedMedia]) -> list[MediaSpan]:
        ids, found, start = list(ids), list[MediaSpan](), 0
        for item in media:
            places = self._processor.places(item)
            first = int(places[0])
            core = list(item.tokens[first : int(places[-1]) + 1])  # its edges may have become one with what is around
            at = _find(ids, core, start)
            if at is None:
                raise ValueError(f"the prompt has no place for {item.kind} {len(found) + 1} of {len(media)}")
            found.append(MediaSpan(item, at + places - first))
            start = at + len(core)
        self._check_strays(ids, found)
        return found

    def _check_strays(self, ids: list[int], spans: Sequence[MediaSpan]) -> None:
        """Refuse placeholders outside of all items: the model would look for what stands for them.

        Raises:
            SpelledPlaceholder: names it.
        """
        known = sorted({token for place in self._processor.placeholders.values() for token in place.ids})
        stray = np.isin(ids, known)
        for span in spans:
            stray[span.start : span.stop] = False
        if stray.any():
            token = str(self.tokenizer.convert_ids_to_tokens(ids[int(stray.argmax())]))
            raise SpelledPlaceholder(f"a text contains the placeholder '{token}'; escape it, or send the item itself")

    def _with_media(
        self, media: Sequence[ProcessedMedia], messages: list[Json], variables: Json, tools: Tools, restore: Restore
    ) -> tuple[list[Json], Json, Tools, Restore]:
        def fill(text: str) -> str:
            text = self._numbered(text, media)
            text = text if restore is None else restore(text)
            return _PLACE.sub(lambda found: _expansion(media, int(found[1])), text).replace(_GUARD, "")

        messages = [self._formed(self._guarded(message)) for message in messages]
        tools = None if tools is None else [self._guarded(tool) for tool in tools]
        return messages, self._guarded(variables), tools, fill

    def _guarded(self, values: Json) -> Json:
        """The same JSON object, in whose strings nothing passes for a placeholder."""
        return {key: self._guarded_value(item) for key, item in values.items()}

    def _guarded_value(self, value: object) -> object:
        if isinstance(value, str):
            return self._placeholder.sub(lambda found: f"{found[0][0]}{_GUARD}{found[0][1:]}", value)
        if isinstance(value, dict):
            return self._guarded(value)
        return [self._guarded_value(item) for item in value] if isinstance(value, list | tuple) else value

    def _numbered(self, text: str, media: Sequence[ProcessedMedia]) -> str:
        """The rendered text with a number instead of each item's placeholder.

        Raises:
            ValueError: the template left some out, or changed their order.
        """
        of_text = {place.text: kind for kind, place in self._processor.placeholders.items()}
        rendered = [of_text[found] for found in self._placeholder.findall(text)]
        if rendered != [item.kind for item in media]:
            raise ValueError(
                f"this model's chat template does not support {', '.join(item.kind for item in media)} in these "
                f"positions; it renders {', '.join(rendered) or 'none'}"
            )
        numbers = itertools.count()
        return self._placeholder.sub(lambda found: f"{_GUARD}{next(numbers):07}", text)

    def _formed(self, message: Json) -> Json:
        """A message in the form that the template reads: parts as they are, or one text with placeholders."""
        parts = message.get("content")
        if not isinstance(parts, list):
            return message
        names = {kind: self._name(kind) for kind in {part.get("type") for part in parts} if kind in _KINDS}
        if None in names.values():
            return {**message, "content": "".join(self._as_text(part) for part in parts)}

        def formed(part: Json) -> Json:
            if part.get("type") == "text":  # templates read either name
                return {"text": part["text"], "content": part["text"], "type": "text"}
            return {**part, "type": names[part["type"]]} if part.get("type") in names else part

        return {**message, "content": [formed(part) for part in parts]}

    def _name(self, kind: MediaKind) -> str | None:
        """The type of such parts in the template: ours, or OpenAI's; None: it knows none."""
        template = str(getattr(self.tokenizer, "chat_template", None))
        return next((name for name in (kind, f"{kind}_url") if re.search(rf"['\"]{name}\b", template)), None)

    def _as_text(self, part: Json) -> str:
        if part.get("type") not in _KINDS:
            return str(part.get("text", ""))
        from mlx_vlm.prompt_utils import MODEL_CONFIG, MessageFormat

        # As mlx-vlm does for models whose template knows text only.
        after = "\n" if MODEL_CONFIG.get(self._model_type) is MessageFormat.IMAGE_TOKEN_NEWLINE else ""
        return self._processor.placeholders[part["type"]].text + after


def _expansion(media: Sequence[ProcessedMedia], number: int) -> str:
    """An item's expansion; MiniCPM-V numbers images, of which each is the first to its processor."""
    item = media[number]
    before = sum(each.kind == item.kind for each in media[:number])
    return item.expansion.replace(_FIRST, _FIRST.replace("0", str(before)), 1)


def _find(ids: list[int], core: list[int], start: int) -> int | None:
    """Find `core` in ids, at `start` or later."""
    places = (i for i in range(start, len(ids)) if ids[i] == core[0])
    return next((i for i in places if ids[i : i + len(core)] == core), None)


def _check_sides(picture: Image, processor: ImageProcessingMixin | None) -> None:
    """Refuse what Kimi-VL's image processor would crop to nothing.

    Raises:
        ValueError: a side is shorter than the patches that become one token.
    """
    merged = getattr(processor, "merge_kernel_size", None)
    if processor is None or merged is None or processor.pad_input:
        return
    height, width = (side * processor.patch_size for side in merged)
    if picture.width < width or picture.height < height:
        raise ValueError(f"image too small: {picture.width} x {picture.height}, minimum {width} x {height}")


def _resampled(samples: npt.NDArray[np.float32], rate: float | None, wanted: float) -> npt.NDArray[np.float32]:
    """A sound at another rate, by its spectrum: frequencies that the new rate cannot hold are left out."""
    if rate is None or rate == wanted or not len(samples):
        return samples.astype(np.float32)
    n = max(1, round(len(samples) * wanted / rate))
    return np.asarray(np.fft.irfft(np.fft.rfft(samples), n) * (n / len(samples)), np.float32)


def _check_length(media: Media, extractor: FeatureExtractionMixin) -> None:
    """Refuse what the extractor would cut off without a word, before anything is done with its samples.

    Raises:
        ValueError: it is longer than what the model hears.
    """
    most = inspect.signature(type(extractor).__call__).parameters.get("max_length")
    wanted = extractor.sampling_rate
    if most is None or not isinstance(most.default, int):
        return
    seconds = [len(media.data) / (media.rate or wanted), most.default / wanted]
    if round(seconds[0] * wanted) > most.default:
        raise ValueError(f"audio too long: {seconds[0]:.1f} s, maximum {seconds[1]:g} s")


def _numbers(name: str, value: object) -> npt.NDArray[np.generic] | None:
    """An array that the tower may read; None for what it does not."""
    if name in _OF_TEXT or value is None or isinstance(value, str | int | float):
        return None
    if isinstance(value, Levels):
        return value
    array = np.ascontiguousarray(value)[...] if isinstance(value, np.ndarray) and value.ndim else np.array(value)
    if array.dtype == np.float64:  # MLX has none
        array = array.astype(np.float32)
    return array if array.dtype.kind in "fiub" and array.ndim else None


def _set_deepseek(inputs: dict[str, npt.NDArray[np.generic]], tokens: Sequence[int], place: Placeholder) -> None:
    """Set what DeepSeek-VL2 reads apart from pixels: its mask is that of the tokens that were left, and where its model
    looks for as many pictures as there are tiles, the sizes of those that are not there are zeros and not what the
    memory holds.
    """
    inputs["images_seq_mask"] = np.isin([tokens], place.ids)
    sizes, tiles = inputs["images_spatial_crop"], inputs["pixel_values"].shape[1]
    inputs["images_spatial_crop"] = np.pad(sizes, ((0, 0), (0, tiles - sizes.shape[1]), (0, 0)))


def _digest(media: Media, inputs: Mapping[str, npt.NDArray[np.generic]], tokens: Sequence[int]) -> int:
    """Equal for equal items of which the processor has made equally many numbers and tokens; above 0 and of 63 bits."""
    data, shapes = media.data, sorted((name, array.shape) for name, array in inputs.items())
    made = (media.kind, media.rate, media.detail == "low", data.shape, data.dtype, shapes, list(tokens))
    digest = hashlib.sha256(repr(made).encode())  # processors have instructions for it: half of the time of blake2b
    digest.update(np.ascontiguousarray(data).data)
    return int.from_bytes(digest.digest()[:8], "big") % (2**63 - 1) + 1
