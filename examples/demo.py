"""Several chats at once, streamed, and questions about a picture, on the two checkpoints that ship with the package."""

import asyncio
import shutil
import sys
import time

from PIL import Image, ImageDraw, ImageFont

from localai_shim import AsyncLocalOpenAI, image

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
ABOUT_THE_PICTURE = [
    "What is in this picture?",
    "How many shapes are there?",
    "What is left of the blue square?",
    "What number is printed?",
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
        print(
            f"\033[{up}A\r\033[K{line[: shutil.get_terminal_size().columns - 1]}\033[{up}B\r",
            end="",
            flush=True,
        )


def draw() -> Image.Image:
    """A red circle, right of it a blue square, and a number below them."""
    picture = Image.new("RGB", (384, 256), "white")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((40, 30, 120, 110), fill="red")
    pen.rectangle((250, 30, 330, 110), fill="blue")
    pen.text((130, 150), "472", fill="black", font=ImageFont.load_default(72))
    return picture


async def look(
    client: AsyncLocalOpenAI, picture: Image.Image, question: str
) -> str:
    """One answer about a picture."""
    content = [image(picture), {"type": "text", "text": question}]
    answer = await client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": content}]
    )
    return answer.choices[0].message.content or ""


async def main() -> None:
    async with AsyncLocalOpenAI() as client:
        screen = Screen(QUESTIONS)
        print(f"{len(QUESTIONS)} requests, streaming from one batch:\n")
        start = time.perf_counter()
        tokens = await asyncio.gather(
            *(ask(client, question, screen) for question in QUESTIONS)
        )
        seconds = time.perf_counter() - start
        print("\n\nThe answers:\n")
        for question, answer in screen.answers.items():
            print(f"  {question}\n    {answer.strip()}\n")
        print(
            f"{sum(tokens)} tokens in {seconds:.2f} s, the time to load the model included"
        )
    async with AsyncLocalOpenAI("builtin:vision") as client:
        picture = draw()
        answers = await asyncio.gather(
            *(look(client, picture, question) for question in ABOUT_THE_PICTURE)
        )
        print(
            "\nA picture, drawn by this program: a red circle, right of it a blue square, and 472 below them:\n"
        )
        for question, answer in zip(ABOUT_THE_PICTURE, answers, strict=True):
            print(f"  {question}\n    {answer}\n")


asyncio.run(main())
