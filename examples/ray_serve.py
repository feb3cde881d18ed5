"""A URL for clients of OpenAI's API in any language: Ray Serve starts and stops engines as requests come.

serve run examples.ray_serve:app          # needs ray[serve]
curl http://127.0.0.1:8000/v1/responses -H 'content-type: application/json' -d '{"input": "What is your name?"}'

Each engine keeps what it is told to keep for itself: give them one `store` if conversations are to go on.
"""

from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve

from localai_shim import async_http_client

routes = FastAPI()


@serve.deployment(
    max_ongoing_requests=128,
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": 4,
        "target_ongoing_requests": 32,
    },
    # ray_actor_options={"num_gpus": 1},
)
@serve.ingress(routes)
class Engine:
    """One engine, in a process of its own."""

    def __init__(self, model: str | None = None) -> None:
        self.http = async_http_client(model=model, timeout=None)

    @routes.api_route("/v1/{path:path}", methods=["GET", "POST", "DELETE"])
    async def answer(self, request: Request, path: str) -> StreamingResponse:
        """Pass a request on; whoever leaves amid a stream frees its row."""
        content = await request.body()
        asked = self.http.build_request(
            request.method,
            str(request.url),
            headers=request.headers,
            content=content,
        )
        answer = await self.http.send(asked, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in answer.aiter_raw():
                    yield piece
            finally:
                await answer.aclose()

        return StreamingResponse(
            pieces(), answer.status_code, dict(answer.headers)
        )


app = Engine.bind()
