"""A web app with the model inside, whose requests share one batch.

uvicorn examples.fastapi_app:app          # needs fastapi and uvicorn
curl -N 'http://127.0.0.1:8000/ask?question=What+is+your+name%3F'
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from localai_shim import AsyncLocalOpenAI


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Create one client, which is closed with the app."""
    async with AsyncLocalOpenAI() as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/ask")
async def ask(request: Request, question: str) -> StreamingResponse:
    """Stream an answer. If the browser disconnects, it leaves the batch."""
    client: AsyncLocalOpenAI = request.app.state.client
    stream = await client.responses.create(
        model="gpt-4o", input=question, max_output_tokens=60, stream=True
    )

    async def text() -> AsyncIterator[str]:
        async with stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta

    return StreamingResponse(text(), media_type="text/plain")
