"""Content parts that hold pictures as they are: nothing has to be encoded on its way to a model in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from openai.types.chat import ChatCompletionContentPartImageParam
    from openai.types.responses import ResponseInputImageParam
    from PIL import Image

    from ..media import Detail

    ImageSource = str | bytes | Path | Image.Image | npt.NDArray[np.uint8] | npt.NDArray[np.floating]


def image(source: ImageSource, *, detail: Detail = "auto") -> ChatCompletionContentPartImageParam:
    """A picture as a part of a chat message's content.

    Args:
        source: a `PIL.Image.Image`; an array `[height, width]` or `[height, width, 3 or 4]` of uint8, or of floats from
            0 to 1; the bytes of a file; a `pathlib.Path`, which is read wherever it is, as the program itself names it;
            or a string as OpenAI takes it: a `data:` URL, or, where the client allows these, another URL or a file.
        detail: how closely the model looks: 'low', 'high', 'auto' or 'original'.

    Example:
        >>> from PIL import Image
        >>> from localai_shim import image
        >>> from localai_shim.testing import scripted
        >>> content = [{"type": "text", "text": "What colour is it?"}, image(Image.new("RGB", (32, 32), "red"))]
        >>> with scripted("Red.") as client:  # or a LocalOpenAI whose model reads images
        ...     answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": content}])
        >>> answer.choices[0].message.content
        'Red.'
    """
    url = {"url": source, "detail": detail}
    return cast("ChatCompletionContentPartImageParam", {"type": "image_url", "image_url": url})


def input_image(source: ImageSource, *, detail: Detail = "auto") -> ResponseInputImageParam:
    """The same for `client.responses`.

    Example:
        >>> from pathlib import Path
        >>> from localai_shim import input_image
        >>> part = input_image(Path("house.png"), detail="low")
        >>> [{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, part]}]
        [{'role': 'user', 'content': [{'type': 'input_text', ...}, {'type': 'input_image', ...}]}]
    """
    return cast("ResponseInputImageParam", {"type": "input_image", "image_url": source, "detail": detail})
