"""Tools of type `namespace`: functions and custom tools of the caller's under a common name.

The model sees each as a tool of its own, such as `crm__list_orders`; calls and their items say `namespace` and `name`.
https://platform.openai.com/docs/api-reference/responses/create#responses_create-tools
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import BadRequest
from ...prompt.tools import qualified_name
from ..items.fields import ItemFields

_INDEX = re.compile(r"^tools\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class FlatTools:
    """The tools of a request, those of namespaces among the others.

    Attributes:
        tools: in the flat form of the Responses API.
        paths: where each stands in the request.
        names: as the model knows it -> namespace and name.
    """

    tools: list[Any] = field(default_factory=list[Any])
    paths: list[str] = field(default_factory=list[str])
    names: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def choice(self, choice: Any) -> Any:
        """A `tool_choice` with the names that the model knows; a function may be named `crm.list_orders`, too."""
        if not isinstance(choice, dict):
            return choice
        if isinstance(choice.get("tools"), list):
            return {**choice, "tools": [self.choice(tool) for tool in choice["tools"]]}
        asked = (choice.get("namespace"), choice.get("name"))
        for known, (namespace, name) in self.names.items():
            if asked in ((namespace, name), (None, f"{namespace}.{name}")):
                return {**{key: value for key, value in choice.items() if key != "namespace"}, "name": known}
        return choice

    def placed(self, error: BadRequest) -> BadRequest:
        """An error about one of `tools` with its path in the request."""
        found = _INDEX.match(error.param or "")
        if error.param is None or found is None:
            return error
        path = self.paths[int(found[1])]
        message = error.message.replace(f"'{found[0]}", f"'{path}")
        return BadRequest(message, param=path + error.param[found.end() :], code=error.code)


def flatten(tools: Sequence[Any]) -> FlatTools:
    """Take the tools out of their namespaces.

    Raises:
        BadRequest: a namespace is not as it has to be.
    """
    flat = FlatTools()
    for i, tool in enumerate(tools):
        if isinstance(tool, dict) and tool.get("type") == "namespace":
            _add_namespace(flat, tool, f"tools[{i}]")
        else:
            flat.tools.append(tool)
            flat.paths.append(f"tools[{i}]")
    return flat


def _add_namespace(flat: FlatTools, value: dict[str, Any], path: str) -> None:
    fields = ItemFields(value, path)
    fields.option("type", ("namespace",))
    namespace, description = fields.word("name"), fields.text("description")
    tools = fields.array("tools")
    fields.finish()
    if not tools:
        raise BadRequest(f"Invalid '{path}.tools': empty array.", param=f"{path}.tools", code="empty_array")
    for i, tool in enumerate(tools):
        inner = ItemFields(tool, f"{path}.tools[{i}]")
        inner.option("type", ("function", "custom"))
        name, own = inner.word("name"), inner.optional("description")
        known = qualified_name(namespace, name)
        flat.names[known] = (namespace, name)
        about = "\n".join(filter(None, (own, f"{namespace}: {description}" if description else None)))
        flat.tools.append({**tool, "name": known, "description": about})
        flat.paths.append(inner.path)
