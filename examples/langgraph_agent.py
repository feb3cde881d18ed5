"""A LangGraph agent on a local model.

python examples/langgraph_agent.py        # needs langgraph, langchain and langchain-openai
"""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from localai_shim import AsyncLocalOpenAI, LocalOpenAI


def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"{len(city) * 3} degrees in {city}, sunny"


def main() -> None:
    client, async_client = (
        LocalOpenAI(),
        AsyncLocalOpenAI(),
    )  # equal options: both share one engine
    model = ChatOpenAI(
        model="gpt-4o",
        temperature=0,
        # LangChain takes resources for the first two, and clients for the others.
        client=client.chat.completions,
        async_client=async_client.chat.completions,
        root_client=client,
        root_async_client=async_client,
    )
    agent = create_agent(model, [get_weather])
    state = agent.invoke(
        {
            "messages": [
                {"role": "user", "content": "What is the weather in Paris?"}
            ]
        }
    )
    for message in state["messages"]:
        message.pretty_print()


if __name__ == "__main__":
    main()
