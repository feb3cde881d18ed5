"""`code_interpreter`: the hook gets code and the id of a container, and returns logs and files."""

from __future__ import annotations

import mimetypes
from collections.abc import Collection, Sequence

from ...errors import BadRequest
from ...types import CodeFile, CodeResult, Json
from ..fields import Fields, as_strings, given
from ..request_fields import new_id
from .images import is_readable
from .kind import BadResultError, Kind, Names, Options, Outcome, as_list, text_of, value_of

IMAGES = "images"
"""Field of an item with the `data:` URLs of images that models read."""
OUTPUTS = "code_interpreter_call.outputs"
_SIZES = ("1g", "4g", "16g", "64g")
_NOTHING = "The code has printed nothing."


class CodeInterpreter(Kind):
    """Code that answers run."""

    name = "code_interpreter"
    method = "run"
    types = ("code_interpreter",)
    names = Names("code_interpreter_call", "ci", "interpreting")
    description = "Run Python code. Returns what the code prints, and the names of the files that it writes."
    argument = "code"
    about_argument = "The Python code. It must print what you want to know."
    hints = ("memory_limit",)
    text_events = "response.code_interpreter_call_code"
    in_order = True  # they share a container

    def read_options(self, fields: Fields) -> dict[str, object]:
        fields.get("allowed_callers")
        value = fields.get("container")
        if value is None or isinstance(value, str):
            return {"container": fields.string("container")}
        if not isinstance(value, dict):
            raise BadRequest.wrong_type(fields.at("container"), "one of a string or an object", value)
        with fields.inner("container") as inner:
            inner.option("type", ("auto",))
            files = inner.get("file_ids")
            return {
                "file_ids": files and as_strings(inner.at("file_ids"), files),
                "memory_limit": inner.choice("memory_limit", _SIZES),
                "network_policy": inner.mapping("network_policy"),
            }

    def options_in(self, options: Options, items: Sequence[Json]) -> Options:
        """With `auto`, a conversation continues in the container that its last code ran in."""
        if "container" in options:
            return options
        known = (item["container_id"] for item in reversed(items) if item["type"] == self.names.item)
        return {"container": next(known, None) or new_id("cntr_", 24), **options}

    def path_of(self, option: str) -> str:
        return f"container.{option}"

    def outcome(self, returned: object) -> Outcome:
        what = "what 'code_interpreter' returns"
        if isinstance(returned, str):
            returned = {"logs": returned}
        if returned is None or (value_of(returned, "logs") is None and value_of(returned, "files") is None):
            raise BadResultError(f"{what} must have 'logs' or 'files'")
        files = [
            CodeFile(text_of(file, "name", "a file"), text_of(file, "url", "a file", otherwise=""))
            for file in as_list(value_of(returned, "files") or (), "'files'")
        ]
        result = CodeResult(text_of(returned, "logs", what, otherwise=""), files)
        found: list[Json] = [{"type": "logs", "logs": result.logs}] if result.logs else []
        found += [{"type": "image", "url": file.url} for file in files if file.url and _is_image(file)]
        images = [url for file in files if (url := file.url) and _is_image(file) and is_readable(url)]
        found += [{IMAGES: images}] if images else []
        lines = [result.logs.rstrip("\n") or _NOTHING, *(f"It has written the file {file.name}." for file in files)]
        return Outcome("\n".join(lines), found)

    def item_fields(self, argument: str, options: Options, found: Sequence[Json], include: Collection[str]) -> Json:
        outputs = [each for each in found if "type" in each]
        made: Json = {"code": argument, "container_id": options["container"]}
        made["outputs"] = outputs if outputs and OUTPUTS in include else None
        return {**made, **{name: each[name] for each in found for name in (IMAGES,) if name in each}}

    def read_item(self, fields: Fields) -> Json:
        outputs = None
        if fields.has("outputs"):
            outputs = [
                _output(Fields(each, f"{fields.at('outputs')}[{i}]")) for i, each in enumerate(fields.array("outputs"))
            ]
        made: Json = {"code": fields.string("code"), "container_id": fields.text("container_id"), "outputs": outputs}
        return made | ({IMAGES: as_strings(fields.at(IMAGES), fields.get(IMAGES))} if fields.has(IMAGES) else {})

    def asked(self, item: Json) -> str:
        return item.get("code") or ""

    def shown_output(self, item: Json) -> str:
        return "".join(each.get("logs") or "" for each in item.get("outputs") or ()) or _NOTHING

    def pictures(self, item: Json) -> Sequence[str]:
        return item.get(IMAGES) or ()


def _is_image(file: CodeFile) -> bool:
    return (mimetypes.guess_type(file.name)[0] or "").startswith("image/")


def _output(fields: Fields) -> Json:
    fields.option("type", ("logs", "image"))
    read = given(**{name: fields.string(name) for name in ("type", "logs", "url")})
    fields.finish()
    return read
