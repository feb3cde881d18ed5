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
    """Create an image part for the content of a chat message.

    Args:
        source: `PIL.Image.Image`; array `[height, width]` or `[height, width, 3 or 4]` of uint8, or of floats from 0 to
            1; bytes of a file; `pathlib.Path` in any folder; or a string: a `data:` URL, or another URL or path if the
            client allows it.
        detail: Resolution that the model uses: 'low', 'high', 'auto', or 'original'.

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
    """Create an image part for `client.responses`; the arguments are those of `image`.

    Example:
        >>> from pathlib import Path
        >>> from localai_shim import input_image
        >>> part = input_image(Path("house.png"), detail="low")
        >>> [{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, part]}]
        [{'role': 'user', 'content': [{'type': 'input_text', ...}, {'type': 'input_image', ...}]}]
    """
    return cast("ResponseInputImageParam", {"type": "input_image", "image_url": source, "detail": detail})
