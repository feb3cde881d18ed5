"""Languages that Whisper models hear: their codes, their names, and what a request says of them."""

from __future__ import annotations

from collections.abc import Collection

from ....errors import BadRequest, listed

_NAMES = """
en=english; zh=chinese; de=german; es=spanish; ru=russian; ko=korean; fr=french; ja=japanese; pt=portuguese;
tr=turkish; pl=polish; ca=catalan; nl=dutch; ar=arabic; sv=swedish; it=italian; id=indonesian; hi=hindi;
fi=finnish; vi=vietnamese; he=hebrew; uk=ukrainian; el=greek; ms=malay; cs=czech; ro=romanian; da=danish;
hu=hungarian; ta=tamil; no=norwegian; th=thai; ur=urdu; hr=croatian; bg=bulgarian; lt=lithuanian; la=latin;
mi=maori; ml=malayalam; cy=welsh; sk=slovak; te=telugu; fa=persian; lv=latvian; bn=bengali; sr=serbian;
az=azerbaijani; sl=slovenian; kn=kannada; et=estonian; mk=macedonian; br=breton; eu=basque; is=icelandic;
hy=armenian; ne=nepali; mn=mongolian; bs=bosnian; kk=kazakh; sq=albanian; sw=swahili; gl=galician; mr=marathi;
pa=punjabi; si=sinhala; km=khmer; sn=shona; yo=yoruba; so=somali; af=afrikaans; oc=occitan; ka=georgian;
be=belarusian; tg=tajik; sd=sindhi; gu=gujarati; am=amharic; yi=yiddish; lo=lao; uz=uzbek; fo=faroese;
ht=haitian creole; ps=pashto; tk=turkmen; nn=nynorsk; mt=maltese; sa=sanskrit; lb=luxembourgish; my=myanmar;
bo=tibetan; tl=tagalog; mg=malagasy; as=assamese; tt=tatar; haw=hawaiian; ln=lingala; ha=hausa; ba=bashkir;
jw=javanese; su=sundanese; yue=cantonese
"""
_OTHER_NAMES = """
burmese=my; valencian=ca; flemish=nl; haitian=ht; letzeburgesch=lb; pushto=ps; panjabi=pa; moldavian=ro;
moldovan=ro; sinhalese=si; castilian=es; mandarin=zh
"""

NAMES = dict(entry.strip().split("=") for entry in _NAMES.split(";"))
"""Code -> name, as OpenAI's whisper has them."""
_CODES = {name: code for code, name in NAMES.items()} | dict(
    entry.strip().split("=") for entry in _OTHER_NAMES.split(";")
)


def name_of(code: str) -> str:
    """A language's name, such as `english`; the code itself if it has none."""
    return NAMES.get(code, code)


def read_language(value: str, known: Collection[str], path: str) -> str:
    """The code of a language that a request names, by code or by name.

    Args:
        value: as it was sent.
        known: codes that the model knows; empty: it knows English only.
        path: the field.

    Raises:
        BadRequest: the model does not know it.
    """
    given = value.strip().lower()
    code = _CODES.get(given, given)
    if code in (known or ("en",)):
        return code
    if not known:
        text = f"Invalid value: '{value}'. This model knows English only: leave '{path}' out, or pass 'en'."
    else:
        text = f"Invalid value: '{value}'. This model knows the languages {listed(sorted(known))}."
    raise BadRequest.unsupported_value(path, text)
