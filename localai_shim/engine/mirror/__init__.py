"""Calls that other processes repeat, where a model is spread over several."""
