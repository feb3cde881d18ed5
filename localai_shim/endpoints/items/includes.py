"""`include`: parts of items that answers have only where the caller asks for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...errors import BadRequest
from ...prompt.items import Item

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
# Results of hosted tools never exist here. Urls of images are always included: items without them, sent back as input,
# would be refused.
INCLUDABLE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    ENCRYPTED,
    LOGPROBS,
)


def read_include(fields: Mapping[str, object]) -> frozenset[str]:
    """The field of a body, or the parameter of a url, where it may be one string and be called `include[]`.

    Raises:
        BadRequest: it is not an array of values that OpenAI documents.
    """
    value = fields.get("include")
    if value is None:
        value = fields.get("include[]")
    values = [value] if isinstance(value, str) else value
    if values is None:
        return frozenset()
    if not isinstance(values, list | tuple):
        raise BadRequest.wrong_type("include", "an array of strings", value)
    for i, name in enumerate(values):
        if not isinstance(name, str):
            raise BadRequest.wrong_type(f"include[{i}]", "a string", name)
        if name not in INCLUDABLE:
            raise BadRequest.unknown_value(f"include[{i}]", name, INCLUDABLE)
    return frozenset(values)


def shown(item: Item, include: Collection[str]) -> Item:
    """A copy of a stored item without what was not asked for."""
    if item["type"] == "reasoning" and ENCRYPTED not in include:
        return {key: value for key, value in item.items() if key != "encrypted_content"}
    if item["type"] == "message" and LOGPROBS not in include:
        parts = [{**part, "logprobs": []} if part.get("logprobs") else part for part in item["content"]]
        return {**item, "content": parts}
    return item
