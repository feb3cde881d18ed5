"""Twenty agents share a long system prompt: it is run once, and kept for whoever comes later.

python examples/shared_prompt.py
"""

import asyncio

from localai_shim import AsyncLocalOpenAI

RULES = "\n".join(f"{i}. Answer briefly, and be polite." for i in range(1, 41))
SYSTEM = f"You are a helpful assistant. These are the rules:\n{RULES}"


async def ask(client: AsyncLocalOpenAI, number: int) -> tuple[str, int, int]:
    """One agent's answer, with the number of its prompt's tokens and how many of them were there already."""
    answer = await client.chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"What is {number} + 5?"},
        ],
        max_tokens=20,
        temperature=0,
    )
    usage = answer.usage
    assert usage is not None and usage.prompt_tokens_details is not None
    return (
        answer.choices[0].message.content or "",
        usage.prompt_tokens,
        usage.prompt_tokens_details.cached_tokens or 0,
    )


async def main() -> None:
    async with AsyncLocalOpenAI() as client:
        answers = await asyncio.gather(
            *(ask(client, number) for number in range(1, 21))
        )
    for text, _, _ in answers:
        print(text)
    tokens, cached = (
        sum(tokens for _, tokens, _ in answers),
        sum(cached for _, _, cached in answers),
    )
    print(
        f"{len(answers)} prompts of {tokens} tokens in all, {cached} of which were shared"
    )


if __name__ == "__main__":
    asyncio.run(main())
