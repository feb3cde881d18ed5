"""Several chats at once, streamed, on the checkpoint that ships with the package."""

import asyncio
import shutil
import sys
import time

from localai_shim import AsyncLocalOpenAI

QUESTIONS = [
    "What is your name?",
    "Count from 4 to 12",
    "What is 7 + 5?",
    "Repeat after me: the little red boat",
    "Tell me a short story.",
    "List five colours.",
    "What is the capital of France?",
    "What is the opposite of hot?",
]


async def ask(client: AsyncLocalOpenAI, question: str, show: "Screen") -> int:
    """Stream one answer; returns its number of tokens."""
    stream = await client.chat.completions.create(
        model="gpt-4o",  # any name: the loaded model serves them all
        messages=[{"role": "user", "content": question}],
        max_tokens=120,
        stream=True,
        stream_options={"include_usage": True},
    )
    tokens = 0
    async for chunk in stream:
        for choice in chunk.choices:
            show.add(question, choice.delta.content or "")
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    return tokens


class Screen:
    """Shows all answers as they grow: a line each on a terminal, piece by piece elsewhere."""

    def __init__(self, questions: list[str]) -> None:
        self._questions = questions
        self._terminal = sys.stdout.isatty()
        self.answers = dict.fromkeys(questions, "")
        if self._terminal:
            print("\n" * len(questions), end="")

    def add(self, question: str, text: str) -> None:
        self.answers[question] += text
        if not text:
            return
        number = self._questions.index(question)
        if not self._terminal:
            print(f"{number + 1}:{text!r}", end=" ", flush=True)
            return
        line = f"{question}  {self.answers[question]}".replace("\n", " ")
        up = len(self._questions) - number
        print(f"\033[{up}A\r\033[K{line[: shutil.get_terminal_size().columns - 1]}\033[{up}B\r", end="", flush=True)


async def main() -> None:
    async with AsyncLocalOpenAI() as client:
        screen = Screen(QUESTIONS)
        print(f"{len(QUESTIONS)} requests, streaming from one batch:\n")
        start = time.perf_counter()
        tokens = await asyncio.gather(*(ask(client, question, screen) for question in QUESTIONS))
        seconds = time.perf_counter() - start
        print("\n\nThe answers:\n")
        for question, answer in screen.answers.items():
            print(f"  {question}\n    {answer.strip()}\n")
        print(f"{sum(tokens)} tokens in {seconds:.2f} s, the time to load the model included")


asyncio.run(main())
