"""Every piece is one token and comes back byte for byte; the chat template renders as transformers renders it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jinja2
import pytest

from localai_shim.output.detokenizer import TokenBytes
from localai_shim.prompt.template import ChatTokenizer
from localai_shim.testing import ScriptedTokenizer
from localai_shim.testing.model.replies import ScriptedModel
from tests import inside
from tests.conftest import TEXTS

PIECES: list[Any] = [
    "Hello",
    " world",
    "",
    "\n\n",
    "<think>",
    " <think>",
    "é",
    "é".encode()[:1],
    b"\xff\x00",
    "🙂",
    b"a",
    "<",
]

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 < 3 & 'so'?"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": "é", "y": [1, None]}}}],
    },
    {"role": "tool", "content": "42"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def chat_tokenizer(tokenizer: ScriptedTokenizer) -> ChatTokenizer:
    return ChatTokenizer(ScriptedModel("scripted", None, tokenizer))


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_is_one_token_with_exactly_its_bytes(piece: Any) -> None:
    tokenizer = ScriptedTokenizer()
    token_id = tokenizer.intern(piece)
    assert tokenizer.intern(piece) == tokenizer.intern(token_id) == token_id
    raw = piece if isinstance(piece, bytes) else piece.encode()
    assert TokenBytes(tokenizer)(token_id) == tokenizer.bytes_of(token_id) == raw
    assert b"".join(map(tokenizer.bytes_of, tokenizer.spelling(token_id))) == raw


def test_different_pieces_are_different_tokens_and_a_marker_s_bytes_are_not_the_marker() -> None:
    tokenizer = ScriptedTokenizer()
    ids = [tokenizer.intern(piece) for piece in PIECES]
    assert len(set(ids)) == len(PIECES)
    marker = tokenizer.intern("<think>")
    assert marker in tokenizer.all_special_ids
    assert tokenizer.intern(b"<think>") not in (marker, *tokenizer.all_special_ids)
    vocabulary = tokenizer.get_vocab()
    assert vocabulary["<think>"] == marker
    assert vocabulary["Ġworld"] == tokenizer.intern(" world")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_text_cut_anywhere_into_tokens_comes_back_whole(text: str, size: int) -> None:
    tokenizer = ScriptedTokenizer()
    raw = text.encode()
    ids = [tokenizer.intern(raw[i : i + size]) for i in range(0, len(raw), size)]
    assert tokenizer.decode(ids) == text
    detokenizer = chat_tokenizer(tokenizer).detokenizer()
    out = ""
    for token_id in ids:
        detokenizer.add_token(token_id)
        out += detokenizer.last_segment
    detokenizer.finalize()
    assert out + detokenizer.last_segment == text


@pytest.mark.parametrize(
    "text", [*TEXTS, "<think>so</think> <tool_call>{}</tool_call><", "", "  ", "<think", "x<|im_end|>y"]
)
def test_encoding_and_decoding_are_inverse_and_so_is_splitting(text: str) -> None:
    tokenizer = ScriptedTokenizer()
    before = len(tokenizer)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == before
    assert "".join(tokenizer.split(text)) == text


def test_a_text_is_split_at_markers_and_into_words() -> None:
    tokenizer = ScriptedTokenizer(markers=["[END]"])
    text = "<think>It is so.</think>\n\nYes, 1 2[END]<tool_call>"
    pieces = ["<think>", "It", " is", " so.", "</think>", "\n\nYes,", " 1", " 2", "[END]", "<tool_call>"]
    assert tokenizer.split(text) == pieces
    assert tokenizer.encode("[END]") == [tokenizer.intern("[END]")]
    assert tokenizer.decode(tokenizer.encode("a[END]b"), skip_special_tokens=True) == "ab"


def test_what_is_no_token_is_refused_or_none() -> None:
    tokenizer = ScriptedTokenizer()
    for wrong in (-1, len(tokenizer)):
        with pytest.raises(ValueError, match="is not a token"):
            tokenizer.intern(wrong)
        assert tokenizer.convert_ids_to_tokens(wrong) is None
    with pytest.raises(ValueError, match="surrogates"):
        tokenizer.intern("\ud800")


def test_markers_are_what_the_model_was_said_to_have() -> None:
    bare = ScriptedTokenizer(think=None, tool_format=None)
    assert (bare.think_start, bare.think_end, bare.tool_call_start, bare.tool_call_end) == (None, None, None, None)
    assert bare.tool_format is None
    assert len(bare.encode("<think>")) == len("<think>")
    own = ScriptedTokenizer(think=("[T]", "[/T]"), tool_format="mistral", tool_markers=("[TOOL_CALLS]", ""))
    assert (own.think_start, own.think_end, own.tool_call_start, own.tool_call_end) == (
        "[T]",
        "[/T]",
        "[TOOL_CALLS]",
        "",
    )
    assert own.tool_format == "mistral"
    assert own.eos_token_ids == {own.intern("<|im_end|>")}


def test_threads_agree_on_new_tokens() -> None:
    tokenizer = ScriptedTokenizer()
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda i: tokenizer.intern(f"piece {i % 50}"), range(2000)))
    assert len(set(ids)) == 50
    assert [tokenizer.decode([i]) for i in ids] == [f"piece {i % 50}" for i in range(2000)]


# -- the chat template ----------------------------------------------------------------------------------------------


def test_the_built_in_template_shows_tools_calls_results_and_reasoning() -> None:
    assert ScriptedTokenizer().apply_chat_template(CONVERSATION, TOOLS, add_generation_prompt=True, tokenize=False) == (
        "<|im_start|>system\nBe brief.\n\n# Tools\n<tools>\n"
        '{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}\n</tools><|im_end|>\n'
        "<|im_start|>user\n2 < 3 & 'so'?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nhm\n</think>\n\n"
        '<tool_call>\n{"name": "f", "arguments": {"x": "é", "y": [1, null]}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_built_in_template_closes_the_reasoning_when_told_to() -> None:
    def ending(**variables: Any) -> str:
        tokenizer = ScriptedTokenizer(think=("[T]", "[/T]"))
        text: str = tokenizer.apply_chat_template(
            CONVERSATION[:2], add_generation_prompt=True, tokenize=False, **variables
        )
        return text.split("<|im_start|>")[-1]

    assert ending() == ending(enable_thinking=True) == "assistant\n"
    assert ending(enable_thinking=False) == "assistant\n[T]\n\n[/T]\n\n"


@pytest.mark.parametrize(
    ("think", "tool_format", "reads"),
    [
        (("<think>", "</think>"), "json_tools", {"tools", "enable_thinking"}),
        (None, "json_tools", {"tools"}),
        (("<think>", "</think>"), None, {"enable_thinking"}),
        (None, None, set()),
    ],
)
def test_the_built_in_template_reads_what_the_model_can_do_and_no_more(
    think: Any, tool_format: str | None, reads: set[str]
) -> None:
    tokenizer = chat_tokenizer(ScriptedTokenizer(think=think, tool_format=tool_format))
    assert tokenizer.template_variables == {"messages", "add_generation_prompt"} | reads


TEMPLATES = {
    "built in": ScriptedTokenizer().chat_template,
    "with training tags": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}|{% endfor %}",
    "with filters": "{{ tools | tojson }}{{ messages[1] | tojson(indent=2) }}{{ eos_token }}",
    "white space": "  {% for m in messages %}\n  {{ m.role }}\n{% if m.content %}{% break %}{% endif %}{% endfor %}",
    "with the year": "{{ strftime_now('%Y') }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_renders_as_transformers_renders_it(name: str, byte_level: Any) -> None:
    template = TEMPLATES[name]
    ours = ScriptedTokenizer(chat_template=template).apply_chat_template(
        CONVERSATION, TOOLS, add_generation_prompt=True, tokenize=False
    )
    theirs = inside.tokenizer(byte_level).apply_chat_template(
        CONVERSATION, TOOLS, chat_template=template, add_generation_prompt=True, tokenize=False
    )
    assert ours == theirs
    assert ours


def test_a_template_may_refuse_and_a_model_may_have_none() -> None:
    strict = ScriptedTokenizer(chat_template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(jinja2.TemplateError, match="roles must alternate"):
        strict.apply_chat_template(CONVERSATION)
    without = ScriptedTokenizer(chat_template=None)
    assert not without.has_chat_template
    with pytest.raises(jinja2.TemplateError, match="no chat template"):
        without.apply_chat_template(CONVERSATION)
