"""Chat templates: rendering, the variables that they read, and what happens when they refuse."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localai_shim.errors import BadRequest
from localai_shim.prompt.template import ChatTokenizer, Conversation
from tests.conftest import chat_tokenizer, load_tokenizer
from tests.tiny import TEMPLATE, make_tokenizer

MESSAGES = [{"role": "user", "content": "Hello there"}]
PLAIN = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"

Make = Callable[[str | None], ChatTokenizer]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A tokenizer with a template of one's own."""

    def make(template: str | None) -> ChatTokenizer:
        make_tokenizer(tmp_path, template=template)
        return chat_tokenizer(load_tokenizer(tmp_path))

    return make


def rendered(tokenizer: ChatTokenizer, variables: dict[str, Any] | None = None) -> str:
    return tokenizer.decode(tokenizer.render(Conversation(MESSAGES, variables or {})))


def test_a_conversation_is_rendered_up_to_where_the_assistant_speaks(make: Make) -> None:
    expected = "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(make(TEMPLATE)) == expected


def test_variables_reach_the_template(make: Make) -> None:
    tokenizer = make(PLAIN + "{{ reasoning_effort }}{% if enable_thinking %}!{% endif %}")
    assert rendered(tokenizer, {"reasoning_effort": "low", "enable_thinking": True}) == "[user: Hello there]low!"


def test_variables_that_the_template_does_not_know_change_nothing(make: Make) -> None:
    tokenizer = make(PLAIN)
    assert rendered(tokenizer, {"reasoning_effort": "low"}) == rendered(tokenizer) == "[user: Hello there]"


def test_the_templates_variables_are_known(make: Make) -> None:
    tokenizer = make(PLAIN + "{% set local = 1 %}{{ mood }}{{ local }}{% generation %}{{ place }}{% endgeneration %}")
    assert tokenizer.template_variables == {"messages", "mood", "place"}
    tokenizer.check_variables(["mood", "place", "enable_thinking", "thinking"], "chat_template_kwargs")


def test_an_unknown_variable_is_refused_with_those_that_are_known(make: Make) -> None:
    with pytest.raises(BadRequest, match="does not know 'colour'") as caught:
        make(PLAIN + "{{ mood }}").check_variables(["mood", "colour"], "chat_template_kwargs")
    assert "Variables that it reads: enable_thinking, mood" in caught.value.message
    assert (caught.value.param, caught.value.code) == ("chat_template_kwargs.colour", "unknown_parameter")


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "tokenize"])
def test_what_the_client_sets_itself_is_refused(make: Make, name: str) -> None:
    with pytest.raises(BadRequest, match=f"'{name}' is set by this client") as caught:
        make(PLAIN).check_variables([name], "chat_template_kwargs")
    assert caught.value.param == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('only Latin') }}", "{{ messages[5].content.upper() }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}"],
)
def test_a_template_that_raises_is_a_bad_request(make: Make, template: str) -> None:
    with pytest.raises(BadRequest, match="chat template does not accept these messages") as caught:
        rendered(make(template))
    assert (caught.value.param, caught.value.code) == ("messages", "invalid_messages")
    assert caught.value.__cause__ is not None


def test_the_words_of_a_template_that_refuses_are_shown(make: Make) -> None:
    with pytest.raises(BadRequest, match="roles must alternate"):
        rendered(make("{{ raise_exception('roles must alternate') }}"))


def test_without_a_template_there_is_no_chat(make: Make) -> None:
    with pytest.raises(BadRequest, match=r"no chat template. Use client\.completions") as caught:
        rendered(make(None))
    assert (caught.value.param, caught.value.code) == ("messages", "unsupported_value")


@pytest.mark.parametrize(
    ("template", "knows"),
    [(PLAIN, False), (PLAIN + "{% if messages[0].role == 'developer' %}!{% endif %}", True), (None, False)],
    ids=["no", "yes", "no template"],
)
def test_a_developer_role_is_recognised(make: Make, template: str | None, knows: bool) -> None:
    assert make(template).knows_developer is knows


def test_encoding_and_decoding_are_inverse(make: Make) -> None:
    tokenizer = make(PLAIN)
    for text in ("Hello, world!", " two  spaces ", "Zażółć 🙂"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert all(0 <= i < tokenizer.vocabulary_size for i in tokenizer.encode("Hello"))


def test_several_threads_may_render_at_once(make: Make) -> None:
    tokenizer = make(TEMPLATE)
    conversations = [[{"role": "user", "content": f"{i} " * (i % 7 + 1)}] for i in range(200)]
    alone = [tokenizer.render(Conversation(conversation)) for conversation in conversations]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda conversation: tokenizer.render(Conversation(conversation)), conversations))
    assert together == alone


def test_each_detokenizer_is_its_own(make: Make) -> None:
    tokenizer = make(TEMPLATE)
    ids = tokenizer.encode("one two three")
    first, second = tokenizer.detokenizer(), tokenizer.detokenizer()
    for token_id in ids:
        first.add_token(token_id)
    second.add_token(ids[0])
    first.finalize()
    second.finalize()
    assert (first.last_segment, second.last_segment) == ("one two three", tokenizer.decode(ids[:1]))


def test_markup_is_tokens_without_a_beginning_of_sequence(tokenizer: Any) -> None:
    made = chat_tokenizer(tokenizer)
    assert made.decode(made.encode_marker("</think>")) == "</think>"
    assert tokenizer.bos_token_id is None or made.encode_marker("</think>")[0] != tokenizer.bos_token_id


def test_a_lack_of_memory_is_not_taken_for_a_template_that_refuses(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = make(TEMPLATE)
    expected = rendered(tokenizer)

    def lacking(*_: object, **__: object) -> list[int]:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(tokenizer.model, "apply_chat_template", lacking)
    with pytest.raises(MemoryError):
        rendered(tokenizer)
    assert rendered(tokenizer) == expected
