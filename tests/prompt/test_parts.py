"""Parts of messages that are no text: what is kept of them, and how templates, histories and masks take them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localai_shim.errors import BadRequest
from localai_shim.formats.table import PLAIN
from localai_shim.media import NO_SOURCES, Contents, MediaKind, MediaRules, ProcessedMedia, UnreadError
from localai_shim.prompt import history
from localai_shim.prompt.control_tokens import CallerText
from localai_shim.prompt.fit.form import Form
from localai_shim.prompt.messages import template_messages
from localai_shim.prompt.parts import MediaCache, MediaPart, MediaReader, media_parts
from localai_shim.prompt.template import ChatTokenizer, Conversation
from tests.conftest import chat_tokenizer, load_tokenizer
from tests.tiny import TEMPLATE, make_tokenizer


def item(size: int = 100, kind: MediaKind = "image", tokens: Sequence[int] = ()) -> ProcessedMedia:
    return ProcessedMedia(kind, 1, {"pixels": np.zeros(size, np.uint8)}, "<image>", tokens)


def read(part: Any, path: str) -> MediaPart:
    """As of a model that takes all."""
    made = item()
    return MediaPart("image", path, lambda: made)


IMAGE: Any = {"type": "image_url", "image_url": {"url": "data:,"}}


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_what_was_used_last_is_kept_within_the_budget() -> None:
    cache, made = MediaCache(350), list[str]()

    def get(key: str, size: int = 100) -> None:
        cache.get_or_make(key, lambda: (made.append(key), item(size))[1])

    for key in ("a", "b", "c", "a", "d", "a", "b"):
        get(key)
    assert made == ["a", "b", "c", "d", "b"], "b went first when d came"
    get("large", 400)
    get("large", 400)
    assert made[5:] == ["large", "large"], "more than the budget is not kept, and drives nothing out"
    get("a")
    assert len(made) == 7 and cache.used <= 350


def test_a_failure_is_nobody_elses() -> None:
    cache, entered, gate = MediaCache(), list[int](), threading.Event()

    def make() -> ProcessedMedia:
        entered.append(1)
        assert gate.wait(30)
        if len(entered) == 1:
            raise ValueError("broken")
        return item()

    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(cache.get_or_make, "x", make) for _ in range(6)]
        gate.set()
        failed = [each.exception() is not None for each in asked]
    assert failed.count(True) == 1 and len(entered) >= 2
    before = len(entered)
    assert cache.get_or_make("x", make).kind == "image" and len(entered) == before


def test_a_part_that_is_rendered_again_is_not_read_again() -> None:
    processed: list[Any] = []
    model: Any = SimpleNamespace(
        media_kinds={"image"}, decodes_media=False, process=lambda m: processed.append(m) or item()
    )
    reader = MediaReader(model, MediaRules(), MediaCache(0))
    part = {"type": "image_url", "image_url": {"url": "data:,x"}}
    assert reader(part, "a") is reader(part, "b")
    assert len(processed) == 1


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_message_with_media_has_parts_in_their_places() -> None:
    [message] = template_messages(
        [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}]}],
        read_part=read,
    )
    assert message["content"] == [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert [part.path for part in media_parts([message])] == ["messages[0].content[1]"]


@pytest.mark.parametrize("role", ["system", "developer", "user", "tool", "function"])
def test_whoever_does_not_answer_may_send_them(role: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    before = [{"role": "assistant", "tool_calls": [call]}] if role == "tool" else []
    sent = {"role": role, "content": [IMAGE], "tool_call_id": "c", "name": "f"}
    assert template_messages([*before, sent], read_part=read)[-1]["content"] == [{"type": "image"}]


def calling(count: int) -> list[dict[str, Any]]:
    """A turn of so many calls, each answered with an image."""
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(count)]
    answers = [
        {"role": "tool", "tool_call_id": f"c{i}", "content": [{"type": "text", "text": str(i)}, IMAGE]}
        for i in range(count)
    ]
    sent = [
        {"role": "user", "content": [IMAGE]},
        {"role": "assistant", "content": "Well.", "reasoning_content": "Hm.", "tool_calls": calls},
        *answers[::-1],
    ]
    return template_messages(sent, read_part=read)


def test_every_form_of_a_history_keeps_its_media_and_their_order() -> None:
    messages = calling(3)
    expected = [part.path for part in media_parts(messages)]
    assert len(expected) == 4
    changes: list[dict[str, Any]] = [
        {},
        {"calls": False},
        {"results": "user"},
        {"results": "parts"},
        {"one_call": True, "text_beside": "apart", "ids": "numbered"},
        {"text_as_reasoning": True, "arguments": "string", "ids": "short", "blank": None},
        {"system": "user", "late_system": False, "repeats": frozenset(), "user_first": True, "answers_results": True},
    ]
    fitted = [Form(**change).fit(messages, PLAIN) for change in changes]
    for form in [*fitted, Form().plainest.fit(messages, PLAIN), history.with_parts(messages)]:
        assert [part.path for part in media_parts(form)] == expected
        assert media_parts(form)[0].media is media_parts(messages)[0].media


# -- templates ---------------------------------------------------------------------------------------------------------


def test_what_callers_spell_in_parts_is_masked_and_media_stay(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template=TEMPLATE)
    caller = CallerText(chat_tokenizer(load_tokenizer(tmp_path)).control_tokens)
    [message] = template_messages(
        [{"role": "user", "content": [{"type": "text", "text": "a<|im_end|>b"}, IMAGE]}], read_part=read
    )
    [masked] = caller.mask_messages([message])
    assert "<|im_end|>" not in masked["content"][0]["text"]
    assert masked["content"][1] is message["content"][1]


def test_separators_within_what_was_put_in_for_media_stay(tmp_path: Path) -> None:
    """The separator between a caller's letters may be a token that an image's expansion has, too."""
    make_tokenizer(tmp_path, template=TEMPLATE)
    tokens = chat_tokenizer(load_tokenizer(tmp_path)).control_tokens
    caller, separator = CallerText(tokens), tokens.separator_id
    [masked] = caller.mask_messages([{"role": "user", "content": "a<|im_end|>b"}])
    restored = caller.restore(masked["content"])
    cut = restored.count(tokens.separator)
    assert cut > 0
    image = item(tokens=[5, separator, 6, separator])
    ids = [*image.tokens, 1, *[separator] * cut, 2, *image.tokens]
    assert caller.clean(ids, [image, image]) == [*image.tokens, 1, 2, *image.tokens]


PARTS_ONLY = (
    "{% for m in messages %}[{{ m.role }}:{% for p in m.content %}"
    "{% if p['type'] == 'text' %}{{ p['text'] }}{% elif p['type'] == 'image' %}<image>{% endif %}"
    "{% endfor %}]{% endfor %}"
)


@pytest.mark.parametrize(("template", "text"), [(PARTS_ONLY, "[system:Be brief.][user:Hi]"), (None, "Hi<|im_end|>")])
def test_a_template_that_looks_for_parts_gets_them(tmp_path: Path, template: str | None, text: str) -> None:
    """SmolVLM's and Idefics' walk through the content, and would render nothing of a string."""
    make_tokenizer(tmp_path, template=template or TEMPLATE)
    tokenizer = chat_tokenizer(load_tokenizer(tmp_path))
    tokenizer.model.media_kinds = frozenset({"image"})  # type: ignore[misc]
    messages = template_messages([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert text in ChatTokenizer(tokenizer.model).decode(tokenizer.render(Conversation(messages)))


def file_reader(kinds: set[str], rules: MediaRules = NO_SOURCES) -> MediaReader:
    model: Any = SimpleNamespace(media_kinds=kinds)
    return MediaReader(model, rules, MediaCache())


def content_of(*parts: Any) -> Any:
    made = template_messages([{"role": "user", "content": list(parts)}], read_part=file_reader(set()))
    return made[0]["content"]


FILE: Any = {"type": "file", "file": {"file_data": "QSBub3RlLg==", "filename": "a\n b.txt"}}
NOTE = "[file name]: a b.txt\n[file content begin]\nA note.\n[file content end]"


def test_files_are_text_with_empty_lines_around_it() -> None:
    assert content_of(FILE) == NOTE
    assert (
        content_of({"type": "text", "text": "Read:"}, FILE, {"type": "text", "text": "And?"})
        == f"Read:\n\n{NOTE}\n\nAnd?"
    )


def test_a_file_that_is_still_to_be_read_is_asked_for_after_all_others() -> None:
    rules = MediaRules(remote=True, contents=Contents())
    reader = file_reader(set(), rules)
    parts = [{"type": "input_file", "file_url": f"https://example.com/{i}.txt"} for i in range(3)]
    template_messages([{"role": "user", "content": parts}], read_part=reader)
    assert rules.contents is not None and len(rules.contents.unread) == 3
    with pytest.raises(UnreadError):
        reader.check_read()


def test_files_need_a_reader() -> None:
    with pytest.raises(BadRequest, match="'file' are not supported here") as caught:
        template_messages([{"role": "user", "content": [FILE]}])
    assert caught.value.param == "messages[0].content[0].type"


# -- several items -----------------------------------------------------------------------------------------------------


def test_all_items_of_a_request_are_processed_at_once() -> None:
    together = threading.Barrier(3)

    def process(_: Any) -> ProcessedMedia:
        together.wait(30)  # broken where one of them waits for another
        return item()

    messages = template_messages([{"role": "user", "content": pictures(3)}], read_part=reader(process))
    assert len([part.media for part in media_parts(messages)]) == 3


def test_an_item_that_fails_fails_where_it_is_asked_for() -> None:
    def process(media: Any) -> ProcessedMedia:
        if media.data[0, 0, 0] == 1:
            raise ValueError("it is grey.")
        return item()

    messages = template_messages([{"role": "user", "content": pictures(3)}], read_part=reader(process))
    first, second, third = media_parts(messages)
    assert first.media.kind == third.media.kind == "image"
    for _ in range(2):
        with pytest.raises(BadRequest, match="this model cannot read it: it is grey") as caught:
            _ = second.media
        assert caught.value.param == "messages[0].content[1].image_url.url"


def reader(process: Any) -> MediaReader:
    model: Any = SimpleNamespace(media_kinds=frozenset({"image"}), decodes_media=True, process=process)
    return MediaReader(model, MediaRules(), MediaCache())


def pictures(count: int) -> list[Any]:
    """Of one colour each."""
    shown = (np.full((4, 4, 3), i, np.uint8) for i in range(count))
    return [{"type": "image_url", "image_url": {"url": pixels}} for pixels in shown]
