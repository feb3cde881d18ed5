"""Ask a local model that sees what is in a picture, which this program draws itself.

    python examples/vision.py [MODEL]       # the built-in one knows drawn shapes, numbers and short words

MODEL is a hub id or the folder of any checkpoint that mlx-vlm loads, such as mlx-community/Qwen2.5-VL-3B-Instruct-4bit.
"""

import sys

from PIL import Image, ImageDraw, ImageFont

from localai_shim import LocalOpenAI, image


def draw() -> Image.Image:
    """A red circle, right of it a blue square, and a number below them."""
    picture = Image.new("RGB", (384, 256), "white")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((40, 30, 120, 110), fill="red")
    pen.rectangle((250, 30, 330, 110), fill="blue")
    pen.text((130, 150), "472", fill="black", font=ImageFont.load_default(72))
    return picture


def main(model: str) -> None:
    with LocalOpenAI(model=model) as client:
        stream = client.chat.completions.create(
            model="gpt-4o",  # any name: the loaded model serves them all
            messages=[
                {
                    "role": "user",
                    # A picture in memory goes in as it is; a data: URL does as well.
                    "content": [
                        {"type": "text", "text": "What is in this picture?"},
                        image(draw()),
                    ],
                }
            ],
            max_tokens=120,
            stream=True,
        )
        for chunk in stream:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
        print("\nThis model reads", ", ".join(client.stats().modalities))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "builtin:vision")
