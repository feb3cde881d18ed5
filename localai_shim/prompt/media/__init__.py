"""Images, videos and sounds of callers, made into `Media`.

What a request names by a string is untrusted: URLs and files need `MediaRules`, names are resolved once, and only
public addresses are connected to. What the program itself hands in (a `pathlib.Path`, bytes, a picture, an array)
needs no rule. Formats are told by their first bytes, sizes are checked before pixels exist, reading has a time limit,
and whatever a decoder raises is a 400 that names the field.
"""
