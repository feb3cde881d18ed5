"""Responses whose hosted tools are called between rounds: their items, their events, and what continues them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from openai.types.responses import ResponseStreamEvent

from ...errors import TOO_LONG, BadRequest
from ...output.answer import TextParser
from ...types import GenerationRequest, Json, Prompt
from ..hosted.hooks import Call, run, too_long
from ..hosted.items import MORE, OUTPUT, UNSEEN
from ..hosted.kind import CalledTool, Calls, HostedTool, Options, Outcome
from ..hosted.room import are_short
from ..hosted.running import Running, Show
from ..turn import Round
from .assembler import Form, Kind, OutputItem, ResponseAssembler


class Continuation(NamedTuple):
    """The next round of a response."""

    prompt: Prompt
    parser: TextParser
    works: Sequence[GenerationRequest]


@dataclass(frozen=True, slots=True)
class Hosting:
    """Tools, hooks, and limits with which a response calls hosted tools.

    Attributes:
        tools: those of the request, by the names that the model knows.
        hooks: functions that serve them, by the same names.
        options: of the hooks, by the same names.
        include: of the request.
        most: calls that the response may make; None: any number.
        go_on: makes the next round behind the output so far, of: its items, whether no more calls may be made, and the
            number of tokens that were generated. None: no token is left for it.
        fits: finds out if the context has room for the output so far, and for an answer.
    """

    tools: Mapping[str, CalledTool]
    hooks: Mapping[str, Call]
    options: Mapping[str, Options]
    include: Collection[str]
    most: int | None
    go_on: Callable[[list[Json], bool, int], Continuation | None]
    fits: Callable[[list[Json]], bool]


class HostedItem(OutputItem):
    """An output item for a call of a hosted tool. Its text is the call's argument."""

    __slots__ = (
        *("argument", "has_next", "is_ignored", "is_shown", "outcome", "partial", "reader", "tool", "unseen"),
        "written",
    )

    def __init__(self, index: int, tool: CalledTool, form: Form | None = None) -> None:
        kind = tool.hosted
        form = form or Form(kind.names.item, kind.text_events, kind.argument)
        super().__init__("function", index, tool.name, form)
        self.tool = tool
        self.reader = kind.reader()
        self.written: list[str] = []
        """Pieces of the arguments as the model wrote them."""
        self.argument: str | None = None
        """Argument of the call once it is whole; None: it could not be read."""
        self.outcome: Outcome | None = None
        self.partial = 0
        """Number of events for unfinished results so far."""
        self.unseen = False
        """The context has no room for its images and audio."""
        self.has_next = False
        """The model made another call behind it, in the same round."""
        self.is_shown = self.is_ignored = False


class HostedAssembler(ResponseAssembler):
    """A response that may call hosted tools. `hosting` must be set before it begins.

    Beyond OpenAI's fields the items of such calls have `output`, the text that the model has read, so that a
    conversation that is sent back reads the same.
    """

    hosting: Hosting
    recorded: Callable[[str], Outcome | None] | None = None
    """Gives the recorded outcomes of a tool, by its name and in the order of its calls; None: tools are called."""
    _steps: Generator[None, None, Sequence[GenerationRequest]] | None = None
    """Rest of the work before the next round, see `next_round`."""
    _calls = 0
    """Calls of hosted tools so far."""
    _asked: tuple[HostedItem, ...] = ()
    """Those of this round."""
    _last_call: OutputItem | None = None
    """Last call of this round, of any tool."""

    def fail(self, error: Exception) -> list[ResponseStreamEvent]:
        self._give_up()
        return super().fail(error)

    def cancel(self) -> list[ResponseStreamEvent]:
        self._give_up()
        return super().cancel()

    def next_round(self) -> Round:
        """Do the next step of the work before the next round: up to events to show, or to the end."""
        if self._steps is None:
            self._steps = self._called_and_continued()
        try:
            next(self._steps)
        except StopIteration as done:
            self._steps = None
            return Round(self._flush(), done.value, ends=not done.value)
        return Round(self._flush())

    def _called_and_continued(self) -> Generator[None, None, Sequence[GenerationRequest]]:
        """Make the calls of the round. Returns the works of the next one; none: the response has ended."""
        yield from self._called()
        return self._go_on()

    def _called(self) -> Generator[None, None, None]:
        """Make the calls of the round concurrently. Yields if there are events to show."""
        asked = [item for item in self._asked if item.outcome is None]
        for item in asked:
            item.status = item.tool.hosted.names.working
            if item.tool.hosted.says_working:
                self._emit(f"response.{item.form.type}.{item.status}", **item.at)
        yield
        for item, found in self._results(asked):
            if isinstance(found, Outcome):
                item.has_next = self._last_call not in (None, item)
                self._end_call(item, found)
            else:
                self._show_partial(item, found)
            yield

    def _results(self, asked: Sequence[HostedItem]) -> Iterator[tuple[HostedItem, Outcome | Json]]:
        """Outcomes of calls, and fields of events for unfinished results, as they come. Waits."""
        lanes: dict[object, list[HostedItem]] = {}
        for item in asked:
            outcome = None if self.recorded is None else self.recorded(item.tool.name)
            if outcome is not None:
                yield item, outcome
            else:
                lanes.setdefault(item.tool.hosted if item.tool.hosted.in_order else item, []).append(item)
        yield from Running([[(item, partial(self._call, item)) for item in lane] for lane in lanes.values()]).results()

    def _call(self, item: HostedItem, show: Show) -> Outcome:
        """Outcome of a call. May wait.

        Args:
            show: takes the fields of events for unfinished results.
        """
        tool = item.tool
        assert isinstance(tool, HostedTool)
        return run(tool, self.hosting.hooks[tool.name], item.argument, self.hosting.options[tool.name], show)

    def _show_partial(self, item: HostedItem, fields: Json) -> None:
        tool = item.tool
        assert isinstance(tool, HostedTool)
        if item.partial < tool.hosted.most_partial(self.hosting.options[tool.name]):
            name = f"response.{item.form.type}.partial_image"
            self._emit(name, partial_image_index=item.partial, **fields, **item.at)
            item.partial += 1

    def _end_call(self, item: HostedItem, outcome: Outcome) -> None:
        item.outcome = outcome
        if not (outcome.failed or self._fits(item)):
            item.outcome = outcome = self._too_long(item)
        item.status = "failed" if outcome.failed else "completed"
        if not outcome.failed or item.tool.hosted.says_failed:
            self._emit(f"response.{item.form.type}.{item.status}", **item.at)
        self._emit("response.output_item.done", item=self._made(item), output_index=item.index)

    def _too_long(self, item: HostedItem) -> Outcome:
        """Outcome of a call whose result does not fit the context."""
        assert isinstance(item.tool, HostedTool)
        return too_long(item.tool)

    def _fits(self, item: HostedItem) -> bool:
        """The context has room for an item's outcome; if not for its images and audio, they are left out."""
        has_media = self._has_media(item)
        if not any(map(self._has_media, self._asked)) and self._is_short():
            return True
        if self.hosting.fits(self._output()):
            return True
        item.unseen = has_media
        return has_media and self.hosting.fits(self._output())

    def _has_media(self, item: HostedItem) -> bool:
        if item.outcome is None:
            return False
        kind, made = item.tool.hosted, self._made(item)
        return bool(kind.pictures(made) or kind.sounds(made))

    def _is_short(self) -> bool:
        """The context surely has room for the outcomes of this round."""
        if not self._prompts:  # before the first round
            return False
        before = len(self._prompts[-1].tokens) + self._parsers[-1].generated
        done = [item.outcome.output for item in self._asked if item.outcome is not None]
        return are_short(done, before, self._model.context_length)

    def _output(self) -> list[Json]:
        return [self._made(item) for item in self._items]

    def _go_on(self) -> Sequence[GenerationRequest]:
        """All calls of the round were made: works of the next one, or the end if the caller's functions were called."""
        self._asked, self._last_call = (), None
        if any(map(self._is_own, self._items)):
            self._complete(cut=False)
            return ()
        most, generated = self.hosting.most, sum(parser.generated for parser in self._parsers)
        spent = most is not None and self._calls >= most
        made = self._continuation(spent, generated)
        if made is None:
            self._complete(cut=True)
            return ()
        self._begin_round(made)
        return made.works

    def _begin_round(self, made: Continuation) -> None:
        self._parser = made.parser
        self._prompts.append(made.prompt)
        self._parsers.append(made.parser)

    def _continuation(self, spent: bool, generated: int) -> Continuation | None:
        """The next round; None: the context is full, or no token is left."""
        try:
            return self.hosting.go_on(self._output(), spent, generated)
        except BadRequest as error:
            if error.code != TOO_LONG:
                raise
            return None

    def _is_own(self, item: OutputItem) -> bool:
        """The item is a call of one of the caller's own functions, which end a response."""
        return not (item.form.part or isinstance(item, HostedItem))

    # -- items --------------------------------------------------------------------------------------------------

    def _item(self, kind: Kind, name: str = "") -> OutputItem:
        tool = self.hosting.tools.get(name)
        if tool is None:
            item = super()._item(kind, name)
            if self._is_own(item):
                self._last_call = item
            return item
        self._close("completed")
        self._open = made = self._new_call(len(self._items), tool)
        made.is_ignored = self.hosting.most is not None and self._calls >= self.hosting.most
        if not made.is_ignored:
            self._calls += 1
            self._items.append(made)
            self._asked, self._last_call = (*self._asked, made), made
            if made.form.events:
                self._show(made)
        return made

    def _new_call(self, index: int, tool: CalledTool) -> HostedItem:
        return HostedItem(index, tool)

    def _add(self, item: OutputItem, text: str, **more: object) -> None:
        if not isinstance(item, HostedItem):
            super()._add(item, text, **more)
            return
        item.written.append(text)
        if item.is_shown and (argument := item.reader.feed(text)):
            super()._add(item, argument)

    def _close(self, status: Literal["completed", "incomplete"]) -> None:
        item = self._open
        if not isinstance(item, HostedItem):
            super()._close(status)
            return
        self._open = None
        if item.is_ignored:
            return
        if status == "incomplete" and not item.is_shown:  # nothing of it was seen
            self._items.remove(item)
            self._asked = self._asked[:-1]
            return
        item.argument = item.tool.hosted.read_argument("".join(item.written))
        self._close_argument(item)
        if status == "incomplete":
            self._asked = self._asked[:-1]
            self._drop(item, status)

    def _close_argument(self, item: HostedItem) -> None:
        """The argument is whole, or cut off."""
        streamed = "".join(item.text)
        if not item.is_shown:
            item.text = [item.argument or ""]
            self._show(item)
            return
        if item.argument is not None and item.argument != streamed:
            if item.argument.startswith(streamed):
                super()._add(item, item.argument[len(streamed) :])
            item.text = [item.argument]
        self._emit(item.form.events + ".done", **{item.form.text: "".join(item.text)}, **item.at)

    def _show(self, item: HostedItem) -> None:
        item.is_shown = True
        self._emit("response.output_item.added", item=self._made(item), output_index=item.index)
        self._emit(f"response.{item.form.type}.in_progress", **item.at)

    def _drop(self, item: HostedItem, status: Literal["incomplete", "failed"]) -> None:
        """A call is not made."""
        item.status = status
        if status == "failed" and item.tool.hosted.says_failed:
            self._emit(f"response.{item.form.type}.failed", **item.at)
        self._emit("response.output_item.done", item=self._made(item), output_index=item.index)

    def _give_up(self) -> None:
        """Close what is open, and drop calls that were not made."""
        self._close("incomplete")
        for item in self._asked:
            if item.outcome is None:
                self._drop(item, "failed")
        self._asked = ()

    def _made(self, item: OutputItem, *, empty: bool = False) -> dict[str, object]:
        if not isinstance(item, HostedItem):
            return super()._made(item, empty=empty)
        assert isinstance(item.tool, HostedTool)
        found = () if item.outcome is None else item.outcome.found
        options, include = self.hosting.options[item.tool.name], self.hosting.include
        fields = item.tool.hosted.item_fields("".join(item.text), options, found, include)
        made: dict[str, object] = {"id": item.id, "type": item.form.type, "status": item.status, **fields}
        if item.outcome is not None:
            made |= item.outcome.item or {}
            made[OUTPUT] = item.outcome.output
        if item.unseen:
            made[UNSEEN] = True
        return {**made, MORE: True} if item.has_next else made

    def _found(self) -> Mapping[Calls, Sequence[Json]]:
        done = [item for item in self._items if isinstance(item, HostedItem) and item.outcome is not None]
        kinds = dict.fromkeys(item.tool.hosted for item in done)
        return {kind: [each for item in done if item.tool.hosted is kind for each in _found(item)] for kind in kinds}

    # -- the end ------------------------------------------------------------------------------------------------

    def _finish(self, *, cut: bool) -> None:
        """A round has ended: the response ends with it, or continues with the hooks."""
        if cut:
            self._give_up()
        else:
            self._close("completed")
        if not self._asked:
            super()._finish(cut=cut)


def _found(item: HostedItem) -> Sequence[Json]:
    return () if item.outcome is None else item.outcome.found
