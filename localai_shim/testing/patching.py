"""Clients of the SDK that code under test makes for itself, made local."""

from __future__ import annotations

from ..replacing.clients import AnyLocalOpenAI, ReplacedClients


class patch_openai:
    """Makes the SDK's clients local as long as the context lasts: they are served by what serves `client`.

    All that code under test makes with `openai.OpenAI()`, `openai.AsyncOpenAI()` and their subclasses, such as
    `AzureOpenAI`, under whichever name it has imported them; the client of `openai.chat.completions.create(...)`; and
    clients that were made before. They keep their classes, with the SDK's retries, types and settings. No
    credentials are needed, none is sent, functions that fetch some are not called, and no websocket is opened.
    Frameworks ask the environment for a key themselves: without one, `OPENAI_API_KEY` is a placeholder, and traces of
    openai-agents are off (`OPENAI_AGENTS_DISABLE_TRACING`, unless that is set).

    Contexts may be nested and may overlap: the last one that was entered counts. Outside tests, `replace_openai`
    replaces OpenAI in a whole program.

    Example:
        >>> import openai
        >>> from localai_shim.testing import patch_openai, scripted
        >>> with scripted("It rains.") as client, patch_openai(client):
        ...     openai.OpenAI().responses.create(model="gpt-4o", input="Weather?").output_text  # code under test
        'It rains.'
    """

    def __init__(self, client: AnyLocalOpenAI) -> None:
        self._client = client
        self._replaced: list[ReplacedClients] = []

    def __enter__(self) -> AnyLocalOpenAI:
        self._replaced.append(ReplacedClients(self._client))
        return self._client

    def __exit__(self, *_: object) -> None:
        self._replaced.pop().undo()
