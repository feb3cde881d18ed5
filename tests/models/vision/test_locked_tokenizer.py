"""A processor's tokenizer runs in one thread at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from localai_shim.models.vision.locked_tokenizer import OneAtATime


class Tokenizer:
    """A tokenizer whose result says whether another thread could come in meanwhile."""

    eos_token = "</s>"
    locked: OneAtATime

    def __call__(self, text: str) -> bool:
        with ThreadPoolExecutor() as pool:
            return pool.submit(self.locked._lock.acquire, blocking=False).result()

    def encode(self, text: str) -> bool:
        return self(text)

    def __len__(self) -> int:
        return 7


def test_another_thread_waits_until_a_call_is_over() -> None:
    tokenizer = Tokenizer()
    locked = tokenizer.locked = OneAtATime(tokenizer)
    assert locked("a") is False and locked.encode("a") is False
    assert (locked.eos_token, len(locked)) == ("</s>", 7)
