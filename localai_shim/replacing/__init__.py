"""Replacement of OpenAI in a whole program: the SDK's clients, the environment, the network, and programs to run."""
