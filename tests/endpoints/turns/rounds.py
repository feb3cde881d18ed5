"""Endpoints of tests whose turns have two rounds: the model asks for a search, it is made, and the answer continues.

They are made of the parts of the real endpoints, as hosted tools would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from localai_shim.client import routes
from localai_shim.endpoints import request_fields
from localai_shim.endpoints.answer_fields import usage_fields
from localai_shim.endpoints.chat import create as chat
from localai_shim.endpoints.chat.assembler import ChatAssembler
from localai_shim.endpoints.fields import Fields
from localai_shim.endpoints.items.resources import user_item
from localai_shim.endpoints.responses import assembler as responses
from localai_shim.endpoints.responses import create
from localai_shim.endpoints.responses.background import Run
from localai_shim.endpoints.responses.context import save_response
from localai_shim.endpoints.served import ServedModel
from localai_shim.endpoints.turn import Round, Turn
from localai_shim.stats import RowTimings
from localai_shim.types import GenerationRequest, Prompt, Token

ASKS = "Let me look that up."
FOUND = "Rain, says the almanac."
ANSWERS = "It will rain."


@dataclass
class Searches:
    """Searches that answers ask for, as `search` makes them."""

    search: Callable[[], str] = lambda: FOUND
    made: list[str] = field(default_factory=list)
    steps: int = 1
    """Calls of `next_round` that a search takes."""

    def run(self) -> str:
        """The result of a search."""
        self.made.append("started")
        found = self.search()
        self.made.append(found)
        return found


def decide(request: Any, prompt: str, before: int) -> str:
    """A model that asks for one search, and then answers."""
    return ANSWERS if FOUND in prompt else ASKS


def install(monkeypatch: pytest.MonkeyPatch, searches: Searches) -> None:
    """Have responses and chat completions search once before they answer."""
    endpoints = {"/responses": prepare_response, "/chat/completions": prepare_chat}
    find = routes.find

    def found(method: str, path: str) -> Any:
        if method == "post" and path in endpoints:
            return routes.Generation(partial(endpoints[path], searches=searches)), []
        return find(method, path)

    monkeypatch.setattr(routes, "find", found)


# -- Responses ----------------------------------------------------------------------------------------------------


class SearchItem(responses.OutputItem):
    """An output item for a search."""

    def __init__(self, index: int) -> None:
        super().__init__("message", index)
        self.id = "ws_1"
        self.at = {"item_id": self.id, "output_index": index}


class SearchingResponse(responses.ResponseAssembler):
    """A response that shows its search between two messages."""

    searches: Searches
    model: ServedModel
    plan: create.PromptPlan
    generation: request_fields.Generation
    _search: SearchItem | None = None
    _steps = 0

    def next_round(self) -> Round:
        """Show the search with the first call, and make it with the last one."""
        if self._search is None:
            self._search = item = SearchItem(len(self._items))
            self._items.append(item)
            self._emit("response.output_item.added", item=self._made(item), output_index=item.index)
            self._emit("response.web_search_call.in_progress", **item.at)
        self._steps += 1
        if self._steps < self.searches.steps:
            return Round(self._flush())
        found, item = self.searches.run(), self._search
        item.status = "completed"
        self._emit("response.web_search_call.completed", **item.at)
        self._emit("response.output_item.done", item=self._made(item), output_index=item.index)
        return Round(self._flush(), self._works(found))

    def _works(self, found: str) -> list[GenerationRequest]:
        """What continues the conversation behind the result of the search."""
        self.plan.context.given.append(user_item(found))
        prompt, answer = create.plan_answer(self.plan, self.model, 1, self.generation.salt)
        self._parser = answer.parser(self.generation.limits, with_tokens=False)
        self._prompts.append(prompt)
        self._parsers.append(self._parser)
        return answer.requests(prompt, 1, self.generation, param="input")

    def _made(self, item: responses.OutputItem, *, empty: bool = False) -> dict[str, object]:
        if not isinstance(item, SearchItem):
            return super()._made(item, empty=empty)
        action = {"type": "search", "query": "weather"}
        return {"id": item.id, "type": "web_search_call", "status": item.status, "action": action}

    def _finish(self, *, cut: bool) -> None:
        if self._search is None:
            self._close("completed")
        else:
            super()._finish(cut=cut)


def prepare_response(
    body: Mapping[str, object], model: ServedModel, store: Callable[[], Any], *, searches: Searches
) -> Turn:
    """`responses.create` of a model that searches."""
    fields = Fields(body)
    fields.string("model")
    stream, background = fields.boolean("stream") or False, fields.boolean("background") or False
    kept = fields.boolean("store") is not False
    generation = request_fields.read_generation(fields, model, None, top_logprobs=None)
    given = create.read_prompt_fields(fields, model)
    fields.finish()
    plan = create.read_plan(body, given, model, store)
    prompt, answer = create.plan_answer(plan, model, 1, None)
    assembler = SearchingResponse(
        model=model,
        parser=answer.parser(generation.limits, with_tokens=False),
        prompt=prompt,
        fields={**given.echo, **_ECHO, "background": background, "store": kept, "conversation": None},
        logprobs=False,
        token_ids=False,
        summary=False,
        encrypted=False,
        background=background,
        keep=partial(save_response, store(), plan.context) if kept and not background else None,
    )
    assembler.searches, assembler.model, assembler.plan, assembler.generation = searches, model, plan, generation
    works = answer.requests(prompt, 1, generation, param="input")
    return Turn(assembler, works, stream, partial(Run, plan.context) if background else None)


_ECHO: dict[str, object] = {
    **dict.fromkeys(("max_output_tokens", "previous_response_id", "prompt_cache_retention")),
    "metadata": {},
    "service_tier": "default",
    "temperature": 1.0,
    "top_logprobs": 0,
    "top_p": 1.0,
}
"""Fields of a response that say nothing."""


# -- chat completions ---------------------------------------------------------------------------------------------


class SearchingChat(ChatAssembler):
    """A completion some of whose choices search, and go on in the same message."""

    searches: Searches
    works: list[GenerationRequest]
    choices: list[int]
    """The choice of each piece of this round's work."""
    prompts: list[Prompt]

    def feed(self, index: int, token: Token) -> list[Any]:
        return super().feed(self.choices[index], self._unended(index, token))

    def collect(self, index: int, token: Token) -> None:
        super().collect(self.choices[index], self._unended(index, token))

    def _unended(self, index: int, token: Token) -> Token:
        """A token, which does not end a choice that has asked for a search."""
        if token.finish_reason is None or self.choices[index] % 2 or len(self.prompts) > 1:
            return token
        self._waiting = [*self._waiting, self.choices[index]]
        return token._replace(finish_reason=None)

    _waiting: list[int] = []  # noqa: RUF012  # replaced, never changed

    def next_round(self) -> Round:
        self.choices, self._waiting = sorted(self._waiting), []
        works = [self._work(choice) for choice in self.choices]
        return Round((), works)

    def _work(self, choice: int) -> GenerationRequest:
        found = self._model.tokenizer.encode(self.searches.run())
        prompt = Prompt([*self._prompt.tokens, *found])
        self.prompts.append(prompt)
        return replace(self.works[choice], prompt=prompt, timings=RowTimings(), reply=None)

    def _usage(self, choice: int | None = None, *, begins: bool = False) -> dict[str, Any]:
        return usage_fields(self.prompts, sum(parser.generated for parser in self._parsers))


def prepare_chat(
    body: Mapping[str, object], model: ServedModel, store: Callable[[], Any], *, searches: Searches
) -> Turn:
    """`chat.completions.create`; the choices with even indexes search."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chat, "ChatAssembler", SearchingChat)
        turn = chat.prepare(body, model, store)
    assembler: Any = turn.assembler
    assembler.searches, assembler.works, assembler.choices = searches, list(turn.works), list(range(len(turn.works)))
    assembler.prompts = [turn.works[0].input]
    return turn
