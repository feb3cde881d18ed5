"""Logits of models, compared with transformers' (`make test-reference`).

`cases` and `text_cases` say what is compared and import no torch: the ordinary suite reads them.
"""
