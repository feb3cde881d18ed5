"""Ask a local model that sees what is in a picture, which this program draws itself.

    python examples/vision.py mlx-community/Qwen2.5-VL-3B-Instruct-4bit

The argument is a hub id or the folder of any checkpoint that mlx-vlm loads. None comes with the package: its tests run
this on a tiny model of random weights, which answers with noise.
"""

import sys

from PIL import Image, ImageDraw

from localai_shim import LocalOpenAI, image


def draw() -> Image.Image:
    """A yellow house with a red roof under a blue sky."""
    picture = Image.new("RGB", (336, 336), "skyblue")
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 240, 336, 336), fill="forestgreen")
    pen.rectangle((96, 144, 240, 264), fill="gold")
    pen.polygon(((80, 144), (168, 72), (256, 144)), fill="firebrick")
    pen.rectangle((150, 204, 186, 264), fill="saddlebrown")
    pen.ellipse((264, 24, 312, 72), fill="yellow")
    return picture


def main(model: str) -> None:
    with LocalOpenAI(model=model) as client:
        stream = client.chat.completions.create(
            model="gpt-4o",  # any name: the loaded model serves them all
            messages=[
                {
                    "role": "user",
                    # A picture in memory goes in as it is; a data: URL does as well.
                    "content": [{"type": "text", "text": "What is in this picture?"}, image(draw())],
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
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
