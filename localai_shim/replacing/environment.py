"""The environment while OpenAI is replaced: a placeholder for the key, and addresses that lead nowhere.

Frameworks and scripts ask the environment for a key themselves. Processes that the program starts inherit it: their
clients of the SDK are not replaced, and must not send prompts anywhere. While a whole program's OpenAI is replaced,
they find an address that nothing answers. Tests keep the address: LangChain counts tokens of streams only without one.
"""

from __future__ import annotations

import os

from ..sdk.credentials import PLACEHOLDER

_SERVER = "https://localhost:1"
"""Port 1 is never in use. HTTPS, so that a proxy gets no prompt: it is asked for a connection, which it cannot make."""
NOWHERE = f"{_SERVER}/v1/"
_KEY = "OPENAI_API_KEY"
_PLACEHOLDERS = {
    _KEY: PLACEHOLDER,
    "OPENAI_BASE_URL": NOWHERE,
    "OPENAI_API_BASE": NOWHERE,  # an older name, which LangChain and LiteLLM read
    "AZURE_OPENAI_ENDPOINT": _SERVER,
    "OPENAI_AGENTS_DISABLE_TRACING": "1",  # openai-agents sends its traces with whatever key it finds
}
_ADDRESSES = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT")
_ONLY_IF_SET = ("OPENAI_API_BASE", "AZURE_OPENAI_ENDPOINT")
_UNLESS_SET = ("OPENAI_AGENTS_DISABLE_TRACING",)
_replaced: dict[str, str | None] = {}
"""Variables that are placeholders, or were when other code replaced them -> their values before."""


def set_placeholders(*, whole_program: bool) -> None:
    """Set placeholders if there is no key.

    Args:
        whole_program: even if there is one, and for addresses.
    """
    if os.environ.get(_KEY) and not whole_program:
        return
    for name, placeholder in _PLACEHOLDERS.items():
        is_set = bool(os.environ.get(name))
        if name in (_UNLESS_SET if is_set else _ONLY_IF_SET) or (name in _ADDRESSES and not whole_program):
            continue
        _replaced.setdefault(name, os.environ.get(name))
        os.environ[name] = placeholder


def take_back() -> None:
    """Restore all variables that still have their placeholder."""
    for name, before in list(_replaced.items()):
        if os.environ.get(name) != _PLACEHOLDERS[name]:
            continue
        del _replaced[name]
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def forget() -> None:
    """Restore placeholders that came back after `take_back`, and keep no record of others."""
    take_back()
    _replaced.clear()
