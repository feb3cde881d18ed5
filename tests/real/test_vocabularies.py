"""Every published vocabulary of a model that answers: its tokenizer, and a random model that samples its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.real import vocabularies
from tests.real.vocabularies import CLASSES, KINDS, LEFT_OUT, UNTESTED
from tests.tokenizer_checks import CHECKS, TEMPLATE, Subject, make_subject

NAMES = [*sorted(KINDS), *(f"{name} by class" for name in CLASSES)]


# All tests of one run one after another, in one process.
@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in NAMES])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def subject(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """One vocabulary at a time, since some take a gigabyte."""
    folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
    kind = name.removesuffix(" by class")
    made = make_subject(folder, vocabularies.save(kind, folder, TEMPLATE, by_class=kind != name))
    yield made
    made.close()


def test_every_published_vocabulary_is_tested_or_is_left_out_for_a_reason() -> None:
    assert vocabularies.published() == sorted([*KINDS, *LEFT_OUT])
    assert all(LEFT_OUT.values())


def test_texts_become_the_published_tokens(subject: Subject, name: str) -> None:
    if name in UNTESTED:
        with pytest.raises(FileNotFoundError):
            vocabularies.expected(name)
        return
    cases = vocabularies.expected(name.removesuffix(" by class"))
    assert len(cases) >= 46
    if name.endswith("by class"):  # transformers' LlamaTokenizer puts no second space before a text
        cases = [(text, ids) for text, ids in cases if text == text.lstrip(" ")]
        assert len(cases) >= 30
    assert [(text, subject.ids(text)) for text, _ in cases] == cases


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_holds_of_every_tokenizer(subject: Subject, check: Callable[[Subject], None]) -> None:
    check(subject)
