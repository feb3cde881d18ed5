"""`image_generation`: the hook gets a prompt, and returns an image."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, get_args

from openai.types.responses.tool import ImageGeneration as SdkTool

from ...types import ImageResult, Json
from ..fields import Fields, given
from .images import ImageFile, image_file
from .kind import BadResultError, Kind, Names, Options, Outcome, text_of, value_of

PROMPT = "prompt"
"""Field of an item with the model's own prompt."""
_ECHOED = ("action", "background", "quality")
_STRINGS = ("result", "revised_prompt", PROMPT, "size", "output_format", *_ECHOED)
_GONE = "The image is not available any more."


class ImageGeneration(Kind):
    """Images that answers make."""

    name = "image_generation"
    method = "draw"
    types = ("image_generation",)
    names = Names("image_generation_call", "ig", "generating")
    description = "Generate an image, which is shown to the user directly. Do not describe it or link to it."
    argument = "prompt"
    about_argument = "The description of the image, with all that matters."
    hints = (
        *("action", "background", "complexity", "images", "input_fidelity", "model", "moderation"),
        *("output_compression", "output_format", "partial_images", "quality", "size"),
    )
    streams = True

    def read_options(self, fields: Fields) -> dict[str, object]:
        fields.get("allowed_callers")
        return {
            "action": _choice(fields, "action", ("generate", "edit", "auto")),
            "background": _choice(fields, "background", ("transparent", "opaque", "auto")),
            "complexity": fields.choice("complexity", ("low", "medium", "high")),
            "frame_count": fields.integer("frame_count", 1),
            "frame_duration_ms": fields.integer("frame_duration_ms", 1),
            "input_fidelity": fields.choice("input_fidelity", ("high", "low")),
            "input_image_mask": _mask(fields),
            "model": fields.string("model"),
            "moderation": fields.choice("moderation", ("auto", "low")),
            "output_compression": fields.integer("output_compression", 0, 100),
            "output_format": _choice(fields, "output_format", ("png", "webp", "jpeg", "gif", "svg")),
            "partial_images": fields.integer("partial_images", 0, 3),
            "quality": _choice(fields, "quality", ("low", "medium", "high", "xhigh", "max", "auto")),
            "size": fields.string("size"),
            "svg": fields.mapping("svg"),
        }

    def options_in(self, options: Options, items: Sequence[Json]) -> Options:
        """The hook may edit an image of the conversation."""
        images = [url for item in items for url in _images_of(item)]
        return {**options, "images": images} if images else options

    def outcome(self, returned: object) -> Outcome:
        return self.read(returned, {})

    def read(self, returned: object, options: Options) -> Outcome:
        result = _result(returned)
        file = _file(result.image, options)
        found = given(result=file.data, output_format=file.format, size=file.size, revised_prompt=result.revised_prompt)
        what = f"{file.size} pixels, {file.format}" if file.size else file.format
        return Outcome(f"The image was generated ({what}), and the user sees it.", [found])

    def partial(self, returned: object, options: Options) -> Json:
        file = _file(_result(returned).image, options)
        more = {name: options.get(name) for name in _ECHOED[1:]}
        return given(partial_image_b64=file.data, output_format=file.format, size=file.size, **more)

    def most_partial(self, options: Options) -> int:
        most = options.get("partial_images")
        return most if isinstance(most, int) else 0

    def item_fields(self, argument: str, options: Options, found: Sequence[Json], include: Collection[str]) -> Json:
        echoed = given(**{name: options.get(name) for name in _ECHOED})
        made: Json = {"result": None, PROMPT: argument, "revised_prompt": argument, **echoed}
        return {**made, **found[0]} if found else made

    def read_item(self, fields: Fields) -> Json:
        for name in ("error", "svg_usage"):  # of images that OpenAI has made
            fields.mapping(name)
        return {"result": None, **given(**{name: fields.string(name) for name in _STRINGS})}

    def asked(self, item: Json) -> str:
        return item.get(PROMPT) or item.get("revised_prompt") or ""

    def shown_output(self, item: Json) -> str:
        return "The image was generated, and the user sees it." if item.get("result") else _GONE

    def pictures(self, item: Json) -> Sequence[str]:
        return [url for url in _images_of(item) if not url.startswith("data:image/svg")]


def _choice(fields: Fields, name: str, values: Sequence[str]) -> str | None:
    """A field with one of these values, as far as the SDK has them: a response shows the tool as its type."""
    known = SdkTool.model_fields.get(name)
    literals = [] if known is None else [value for each in get_args(known.annotation) for value in get_args(each)]
    return fields.choice(name, [value for value in values if value in literals] if literals else values)


def _result(returned: object) -> ImageResult:
    """A result, of which only the image is still unread."""
    if isinstance(returned, str | bytes | bytearray | memoryview) or hasattr(returned, "save"):
        return ImageResult(returned)
    image = value_of(returned, "image")
    image = value_of(returned, "b64_json") if image is None else image  # of the SDK's own images
    if image is None:
        raise BadResultError(f"what 'image_generation' returns must be an image, or have one, not {returned!r:.200}")
    return ImageResult(image, text_of(returned, "revised_prompt", "an image", otherwise="") or None)


def _file(image: object, options: Options) -> ImageFile:
    format, quality = options.get("output_format"), options.get("output_compression")
    return image_file(image, format if isinstance(format, str) else None, quality if isinstance(quality, int) else None)


def _mask(fields: Fields) -> dict[str, object] | None:
    if not fields.has("input_image_mask"):
        return None
    with fields.inner("input_image_mask") as inner:
        return given(file_id=inner.string("file_id"), image_url=inner.string("image_url"))


def _images_of(item: Json) -> list[Any]:
    """Images of an item, as the request or an earlier response has them."""
    if item["type"] == "image_generation_call":
        result = item.get("result")
        return [f"data:image/{item.get('output_format') or 'png'};base64,{result}"] if result else []
    if item["type"] != "message":
        return []
    parts = [part for part in item["content"] if part["type"] == "input_image"]
    return [part["image_url"] for part in parts if part.get("image_url") is not None]
