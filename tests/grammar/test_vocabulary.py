from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import llguidance.hf
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from localai_shim.grammar.compile import Grammar, Vocabulary, json_schema, lark, regex
from localai_shim.output.detokenizer import TokenBytes
from tests.grammar.drafts import allowed, may_end, tokenizer_with, vocabulary_of, vocabulary_with
from tests.threads import in_threads

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "n": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
SOURCES = [json_schema(SCHEMA), regex(r"(?s:.*)"), regex(r"[a-c]+é?\n*"), lark('start: "x"+ /[^x]*/')]


def mask_of(matcher: LLMatcher, tokenizer: LLTokenizer) -> list[int]:
    mask = np.zeros((tokenizer.vocab_size + 31) // 32, np.int32)
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    return allowed(mask)


def make_sentencepiece(folder: Path) -> Any:
    """A tokenizer that writes blanks as U+2581 and falls back to bytes, as Llama 2, Mistral and Gemma do."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    corpus = ["the quick brown fox", 'a key: "value", 12, 34', "true false null", "{} [] name number"] * 5
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trained.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=150, special_tokens=["<unk>"]))
    learned = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *(p for p in learned["vocab"] if p != "<unk>")]
    merges = [tuple(merge) for merge in learned["merges"]]
    model = models.BPE({p: i for i, p in enumerate(pieces)}, merges, unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(folder)
    return fast


@pytest.fixture(scope="module", params=["byte level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == "byte level":
        return tokenizer_with("<tool_call>", "</tool_call>")
    return make_sentencepiece(tmp_path_factory.mktemp("sentencepiece"))


@pytest.mark.parametrize("source", SOURCES)
def test_the_vocabulary_allows_what_llguidances_own_reading_of_the_tokenizer_allows(
    tokenizer: Any, source: str
) -> None:
    ours, theirs = vocabulary_of(tokenizer).tokenizer, llguidance.hf.from_tokenizer(tokenizer)
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = LLMatcher(ours, source), LLMatcher(theirs, source)
        for _ in range(25):
            options = mask_of(a, ours)
            assert options == mask_of(b, theirs)
            token = int(rng.choice(options))
            assert a.consume_token(token) and b.consume_token(token)
            if a.is_stopped():
                break


def test_what_a_grammar_writes_is_what_the_tokenizer_decodes(tokenizer: Any) -> None:
    vocabulary = vocabulary_of(tokenizer)
    text = '{"name": "the fox é🙂", "n": -12, "ok": true}'
    tokens = tokenizer.encode(text, add_special_tokens=False)
    matcher = Grammar(json_schema(SCHEMA), vocabulary).matcher()
    mask = np.zeros(vocabulary.words, np.int32)
    for token in tokens:
        matcher.mask(mask)
        assert token in allowed(mask)
        matcher.accept(token)
    assert may_end(matcher, vocabulary)
    assert vocabulary.tokenizer.decode_bytes(tokens).decode() == text


def test_free_text_never_holds_added_tokens_unless_they_are_whitespace() -> None:
    vocabulary = vocabulary_of(tokenizer_with("<tool_call>", "\n\n\n\n"))
    ids = tokenizer_with("<tool_call>", "\n\n\n\n").get_added_vocab()
    mask = np.zeros(vocabulary.words, np.int32)
    Grammar(regex(r"(?s:.*)"), vocabulary).matcher().mask(mask)
    assert ids["\n\n\n\n"] in allowed(mask)
    assert ids["<tool_call>"] not in allowed(mask)
    assert vocabulary.tokenizer.decode_bytes([ids["\n\n\n\n"]]) == b"\n\n\n\n"


def test_each_end_of_sequence_may_end_an_answer_and_nothing_else_that_has_no_text() -> None:
    tokenizer = tokenizer_with()
    eos = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    vocabulary = vocabulary_of(tokenizer, padding=70, eos=eos)
    matcher = Grammar(regex("a?"), vocabulary).matcher()
    mask = np.zeros(vocabulary.words, np.int32)
    matcher.mask(mask)
    assert sorted(allowed(mask)) == sorted([*eos, *tokenizer.encode("a")])
    assert matcher.accept(eos[1])


def test_padding_of_the_models_vocabulary_is_never_said() -> None:
    vocabulary = vocabulary_of(tokenizer_with(), padding=70)
    mask = np.zeros(vocabulary.words, np.int32)
    Grammar(regex(r"(?s:.*)"), vocabulary).matcher().mask(mask)
    assert max(allowed(mask)) < len(tokenizer_with())


def test_tokens_with_equal_bytes_are_allowed_alike() -> None:
    texts = [b"a", b"b", b"a", b""]
    vocabulary = Vocabulary(lambda i: texts[i], 4, [3], {3: "<eos>"}, lambda text: [0 for _ in text])
    mask = np.zeros(1, np.int32)
    Grammar(regex("[ab]"), vocabulary).matcher().mask(mask)
    assert allowed(mask) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>", "<[{start}]>"),
        ("\n<tool_call>\n", '"\\n" <[{start}]> "\\n"'),
        ("<tool_call></tool_call>", "<[{start}]> <[{end}]>"),
        ("<tool", '"<tool"'),
        ('say "hi" \\ é\x7f', '"say \\"hi\\" \\\\ é\\u007f"'),
        ("", '""'),
    ],
)
def test_a_marker_becomes_special_tokens_and_literals(text: str, expected: str) -> None:
    names = ("<tool_call>", "</tool_call>")
    start, end = tokenizer_with(*names).convert_tokens_to_ids(list(names))
    assert vocabulary_with(*names).lark(text) == expected.format(start=start, end=end)


def test_special_tokens_that_the_tokenizer_puts_around_a_marker_are_no_part_of_it() -> None:
    names = ("<tool_call>", "<bos>")
    start, bos = tokenizer_with(*names).convert_tokens_to_ids(list(names))
    vocabulary = Vocabulary(
        lambda i: b"", bos + 1, [bos], {start: "<tool_call>", bos: "<bos>"}, lambda text: [bos, start]
    )
    assert vocabulary.lark("<tool_call>:") == f'<[{start}]> ":"'


def test_the_vocabulary_is_built_once_however_many_threads_ask() -> None:
    vocabulary = vocabulary_of(tokenizer_with())
    built: list[LLTokenizer] = []
    barrier = threading.Barrier(8)

    def ask(_: int) -> None:
        barrier.wait()
        built.append(vocabulary.tokenizer)

    in_threads(ask, range(8))
    assert len(built) == 8 and len({id(tokenizer) for tokenizer in built}) == 1


def test_text_that_has_to_come_next_is_encoded_once_however_many_masks_are_made() -> None:
    tokenizer = tokenizer_with()
    encoded: list[str] = []

    def encode(text: str) -> list[int]:
        encoded.append(text)
        return list(tokenizer.encode(text, add_special_tokens=False))

    vocabulary = Vocabulary(TokenBytes(tokenizer), len(tokenizer), [tokenizer.eos_token_id], {}, encode)
    matcher = Grammar(json_schema({"const": "a sentence that has to come as it stands"}), vocabulary).matcher()
    mask = np.zeros(vocabulary.words, np.int32)
    for _ in range(5):
        matcher.mask(mask)
    assert encoded and len(encoded) == len(set(encoded))
