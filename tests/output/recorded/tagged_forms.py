"""Peculiar answers of families that write parameters one by one, in tags."""

from __future__ import annotations

from tests.output.recorded.case import Case
from tests.output.recorded.spelling import M3

_CITY = {"city": "Marseille"}

_RING = "<tool_call>\n<function=ring>\n</function>\n</tool_call>"
_TRIP = "<function=plan_trip>\n<parameter=city>\nMarseille\n</parameter>\n</function>"

_QWEN = [
    Case(
        "qwen3_coder",
        "the opening marker is left away",
        f"{_TRIP}\n</tool_call>",
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "qwen3_coder",
        "the opening marker is left away behind text",
        f"I will plan it.\n\n{_TRIP}\n</tool_call>",
        calls=(("plan_trip", _CITY),),
        content="I will plan it.",
    ),
    Case("qwen3_coder", "both markers are left away", _TRIP, calls=(("plan_trip", _CITY),)),
    Case(
        "qwen3_coder",
        "the opening marker of the first of two calls is left away",
        f"{_TRIP}\n</tool_call>\n{_RING}",
        calls=(("plan_trip", _CITY), ("ring", {})),
    ),
    Case(
        "qwen3_coder",
        "a call ends a thought that is not closed",
        f"They want to be rung.\n\n{_RING}",
        calls=(("ring", {}),),
        reasoning="They want to be rung.",
        opened=True,
    ),
    Case(
        "qwen3_coder",
        "a marker that is only mentioned in the reasoning",
        f"I would need a <tool_call> for that.\n</think>\n\n{_RING}",
        calls=(("ring", {}),),
        reasoning="I would need a <tool_call> for that.",
        opened=True,
    ),
    Case(
        "qwen3_coder",
        "one newline at each side of a value is markup, others are the value's",
        "<tool_call>\n<function=store_note>\n<parameter=title>\n\n  a\n\n</parameter>\n<parameter=body>\n\n"
        "</parameter>\n</function>\n</tool_call>",
        calls=(("store_note", {"title": "\n  a\n", "body": ""}),),
    ),
    Case(
        "qwen3_coder",
        "no newlines at all",
        "<tool_call><function=plan_trip><parameter=city>Marseille</parameter><parameter=nights>3</parameter></function>"
        "</tool_call>",
        calls=(("plan_trip", {"city": "Marseille", "nights": 3}),),
    ),
    Case(
        "qwen3_coder",
        "numbers and words where the schema says text",
        "<tool_call>\n<function=plan_trip>\n<parameter=city>\n13001\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=store_note>\n<parameter=title>\ntrue\n</parameter>\n<parameter=body>\n"
        '{"a": 1}\n</parameter>\n</function>\n</tool_call>',
        calls=(("plan_trip", {"city": "13001"}), ("store_note", {"title": "true", "body": '{"a": 1}'})),
    ),
    Case(
        "qwen3_coder",
        "a value of several types",
        "<tool_call>\n<function=set_level>\n<parameter=level>\nnull\n</parameter>\n<parameter=label>\n7\n</parameter>\n"
        "</function>\n</tool_call>\n"
        "<tool_call>\n<function=set_level>\n<parameter=level>\n4\n</parameter>\n<parameter=label>\nhigh\n</parameter>\n"
        "</function>\n</tool_call>",
        calls=(("set_level", {"level": None, "label": 7}), ("set_level", {"level": 4, "label": "high"})),
    ),
    Case(
        "qwen3_coder",
        "a value that is not what the schema says",
        "<tool_call>\n<function=plan_trip>\n<parameter=nights>\nsome\n</parameter>\n</function>\n</tool_call>",
        calls=(("plan_trip", {"nights": "some"}),),
    ),
    Case(
        "qwen3_coder",
        "a value that is not what the schema says, beside one that is",
        "<tool_call>\n<function=plan_trip>\n<parameter=nights>\nsome\n</parameter>\n<parameter=budget>\n80\n</parameter>\n"
        "</function>\n</tool_call>",
        calls=(("plan_trip", {"nights": "some", "budget": 80}),),
    ),
    Case(
        "qwen3_coder",
        "markup of another kind in a value",
        "<tool_call>\n<function=store_note>\n<parameter=title>\n<b>x</b> </tool_call> <function=y>\n</parameter>\n"
        "</function>\n</tool_call>",
        calls=(("store_note", {"title": "<b>x</b> </tool_call> <function=y>"}),),
    ),
    Case(
        "qwen3_coder",
        "a parameter that is not closed before the next",
        "<tool_call>\n<function=plan_trip>\n<parameter=city>\nMarseille\n<parameter=nights>\n3\n</parameter>\n</function>\n"
        "</tool_call>",
        calls=(("plan_trip", {"city": "Marseille", "nights": 3}),),
    ),
    Case(
        "qwen3_coder",
        "the turn ends in place of the end markers",
        "<tool_call>\n<function=plan_trip>\n<parameter=city>\nMarseille\n</parameter>\n</function>",
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "qwen3_coder",
        "two calls in one block",
        f"<tool_call>\n{_TRIP}\n<function=ring>\n</function>\n</tool_call>",
        calls=(("plan_trip", _CITY), ("ring", {})),
    ),
    Case(
        "qwen3_coder",
        "a tag in prose",
        "In this format <function=NAME> comes first.",
        content="In this format <function=NAME> comes first.",
    ),
    Case(
        "seed_oss",
        "a thought with its budget",
        "<seed:think>Three nights.<seed:cot_budget_reflect>I have used 20 tokens, 492 remain."
        "</seed:cot_budget_reflect> Good.</seed:think><seed:tool_call>\n<function=ring>\n</function>\n"
        "</seed:tool_call>",
        calls=(("ring", {}),),
        reasoning=None,
    ),
    Case(
        "seed_oss",
        "newlines at a value are the value's",
        "<seed:tool_call>\n<function=store_note>\n<parameter=title>a</parameter>\n<parameter=body>def f():\n    pass\n"
        "</parameter>\n</function>\n</seed:tool_call>",
        calls=(("store_note", {"title": "a", "body": "def f():\n    pass\n"}),),
    ),
    Case(
        "seed_oss",
        "values by the schema",
        "<seed:tool_call>\n<function=plan_trip>\n<parameter=city>13001</parameter>\n<parameter=nights>3</parameter>\n"
        "<parameter=insured>false</parameter>\n</function>\n</seed:tool_call>",
        calls=(("plan_trip", {"city": "13001", "nights": 3, "insured": False}),),
    ),
]


def _keyed(name: str, *pairs: tuple[str, str]) -> str:
    inner = "".join(f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in pairs)
    return f"<tool_call>{name}{inner}</tool_call>"


_O = ":opensource>"
_GLM = [
    Case("glm", "no newlines", _keyed("plan_trip", ("city", "Marseille")), calls=(("plan_trip", _CITY),)),
    Case("glm", "no arguments and a newline", "<tool_call>ring\n</tool_call>", calls=(("ring", {}),)),
    Case(
        "glm",
        "whitespace in a string is the string's",
        _keyed("store_note", ("title", " \n a \n "), ("body", "\tb")),
        calls=(("store_note", {"title": " \n a \n ", "body": "\tb"}),),
    ),
    Case(
        "glm",
        "a value with a marker of calls",
        _keyed("store_note", ("title", "Write </tool_call> last"), ("body", "and <tool_call> first")),
        calls=(("store_note", {"title": "Write </tool_call> last", "body": "and <tool_call> first"}),),
    ),
    Case(
        "glm",
        "numbers where the schema says text, and text where it says numbers",
        _keyed("plan_trip", ("city", "13001"), ("nights", "some"), ("budget", "3")),
        calls=(("plan_trip", {"city": "13001", "nights": "some", "budget": 3}),),
    ),
    Case(
        "glm",
        "a value of several types",
        _keyed("set_level", ("level", "null"), ("label", "12")) + _keyed("set_level", ("level", "1"), ("label", "low")),
        calls=(("set_level", {"level": None, "label": 12}), ("set_level", {"level": 1, "label": "low"})),
    ),
    Case(
        "glm",
        "a call ends a thought that is not closed",
        "They want to be rung.<tool_call>ring</tool_call>",
        calls=(("ring", {}),),
        reasoning="They want to be rung.",
        opened=True,
    ),
    Case(
        "glm",
        "a marker that is only mentioned in the reasoning",
        "A <tool_call> would do.</think>Shall I?",
        reasoning="A <tool_call> would do.",
        content="Shall I?",
        opened=True,
    ),
    Case(
        "glm",
        "the turn ends in place of the end marker",
        "<tool_call>plan_trip\n<arg_key>city</arg_key>\n<arg_value>Marseille</arg_value>",
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "glm",
        "a JSON object in place of tags",
        '<tool_call>{"name": "plan_trip", "arguments": {"city": "Marseille"}}</tool_call>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "longcat",
        "a JSON object in place of tags",
        '<longcat_tool_call>{"name": "plan_trip", "arguments": {"city": "Marseille"}}</longcat_tool_call>',
        calls=(("plan_trip", _CITY),),
    ),
    Case(
        "longcat",
        "no newlines",
        "<longcat_tool_call>plan_trip<longcat_arg_key>nights</longcat_arg_key><longcat_arg_value>3</longcat_arg_value>"
        "</longcat_tool_call>",
        calls=(("plan_trip", {"nights": 3}),),
    ),
    Case(
        "hunyuan3",
        "no newlines",
        f"<tool_calls{_O}<tool_call{_O}plan_trip<tool_sep{_O}<arg_key{_O}nights</arg_key{_O}<arg_value{_O}3</arg_value{_O}"
        f"</tool_call{_O}<tool_call{_O}ring<tool_sep{_O}</tool_call{_O}</tool_calls{_O}",
        calls=(("plan_trip", {"nights": 3}), ("ring", {})),
    ),
    Case(
        "hunyuan3",
        "the prompt closed the reasoning",
        "Marseille is by the sea.",
        content="Marseille is by the sea.",
    ),
]


def _function(name: str, params: str) -> str:
    return f'<function name="{name}">{params}</function>'


_MINICPM = [
    Case(
        "minicpm5",
        "CDATA",
        _function(
            "store_note",
            '<param name="title"><![CDATA[ a < b && c ]]></param><param name="body"><![CDATA[\n</param></function>\n]]>'
            "</param>",
        ),
        calls=(("store_note", {"title": " a < b && c ", "body": "\n</param></function>\n"}),),
    ),
    Case(
        "minicpm5",
        "CDATA around a number",
        _function("plan_trip", '<param name="nights"><![CDATA[3]]></param>'),
        calls=(("plan_trip", {"nights": 3}),),
    ),
    Case(
        "minicpm5",
        "CDATA for text that looks like a number",
        _function("plan_trip", '<param name="city"><![CDATA[13001]]></param>'),
        calls=(("plan_trip", {"city": "13001"}),),
    ),
    Case(
        "minicpm5",
        "newlines between the tags",
        '<function name="plan_trip">\n<param name="city">Marseille</param>\n<param name="insured">true</param>\n'
        "</function>\n",
        calls=(("plan_trip", {"city": "Marseille", "insured": True}),),
    ),
    Case(
        "minicpm5",
        "a tag in prose",
        "Write <function and then a name.",
        content="Write <function and then a name.",
    ),
    Case(
        "minicpm5",
        "cut in CDATA",
        '<function name="store_note"><param name="title"><![CDATA[one\ntw',
        broken=(("store_note", "tw"),),
        finish="length",
    ),
]


def _dsml(section: str, *invokes: str) -> str:
    return f"<｜DSML｜{section}>\n" + "".join(f"{invoke}\n" for invoke in invokes) + f"</｜DSML｜{section}>"


def _invoke(name: str, *parameters: tuple[str, bool, str]) -> str:
    lines = "".join(
        f'<｜DSML｜parameter name="{k}" string="{str(is_text).lower()}">{v}</｜DSML｜parameter>\n'
        for k, is_text, v in parameters
    )
    return f'<｜DSML｜invoke name="{name}">\n{lines}</｜DSML｜invoke>'


_DSML = [
    case
    for family, section in (("deepseek_v32", "function_calls"), ("deepseek_v4", "tool_calls"))
    for case in (
        Case(
            family,
            "the attribute decides, not the schema",
            _dsml(section, _invoke("set_level", ("label", True, "7"), ("level", False, "null"))),
            calls=(("set_level", {"label": "7", "level": None}),),
        ),
        Case(
            family,
            "whitespace and angle brackets in a string",
            _dsml(section, _invoke("store_note", ("title", True, "\n a < b </b> \n"), ("tags", False, '["x", "y"]'))),
            calls=(("store_note", {"title": "\n a < b </b> \n", "tags": ["x", "y"]}),),
        ),
        Case(
            family,
            "all arguments in one parameter",
            _dsml(section, _invoke("plan_trip", ("arguments", False, '{"city": "Marseille", "nights": 3}'))),
            calls=(("plan_trip", {"city": "Marseille", "nights": 3}),),
        ),
        Case(
            family,
            "text before the block and a thought before that",
            "Three nights.</think>I plan it.\n\n" + _dsml(section, _invoke("ring"), _invoke("ring")),
            calls=(("ring", {}), ("ring", {})),
            reasoning="Three nights.",
            content="I plan it.",
            opened=True,
        ),
        Case(
            family,
            "the block's opening marker is left away",
            "Gladly.\n" + _invoke("plan_trip", ("city", True, "Marseille")),
            calls=(("plan_trip", _CITY),),
            content="Gladly.",
        ),
        Case(
            family,
            "the turn ends in place of the block's end",
            f"<｜DSML｜{section}>\n{_invoke('plan_trip', ('city', True, 'Marseille'))}\n",
            calls=(("plan_trip", _CITY),),
        ),
    )
]

_MINIMAX = [
    Case(
        "minimax_m2",
        "no newlines, and values by the schema",
        '<minimax:tool_call><invoke name="plan_trip"><parameter name="city">13001</parameter><parameter name="nights">3'
        '</parameter></invoke><invoke name="ring"></invoke></minimax:tool_call>',
        calls=(("plan_trip", {"city": "13001", "nights": 3}), ("ring", {})),
    ),
    Case(
        "minimax_m2",
        "a block per call",
        '<minimax:tool_call>\n<invoke name="ring">\n</invoke>\n</minimax:tool_call>\n'
        '<minimax:tool_call>\n<invoke name="ring">\n</invoke>\n</minimax:tool_call>',
        calls=(("ring", {}), ("ring", {})),
    ),
    Case(
        "minimax_m2",
        "a list and an object",
        '<minimax:tool_call>\n<invoke name="store_note">\n<parameter name="tags">["a", "b"]</parameter>\n'
        '<parameter name="meta">{"pages": [1], "parent": null}</parameter>\n</invoke>\n</minimax:tool_call>',
        calls=(("store_note", {"tags": ["a", "b"], "meta": {"pages": [1], "parent": None}}),),
    ),
    Case(
        "minimax_m2",
        "a thought that the prompt opened, and no text",
        'They want to be rung.\n</think>\n\n<minimax:tool_call>\n<invoke name="ring">\n</invoke>\n</minimax:tool_call>',
        calls=(("ring", {}),),
        reasoning="They want to be rung.",
        opened=True,
    ),
    Case(
        "minimax_m3",
        "the reasoning is closed at once",
        f'</mm:think>{M3}<tool_call>\n{M3}<invoke name="ring">{M3}</invoke>\n{M3}</tool_call>',
        calls=(("ring", {}),),
    ),
    Case(
        "minimax_m3",
        "objects in objects, and an empty list",
        f'{M3}<tool_call>\n{M3}<invoke name="store_note">{M3}<title>007{M3}</title>{M3}<tags>{M3}</tags>{M3}<meta>'
        f"{M3}<pages>{M3}<item>7{M3}</item>{M3}</pages>{M3}<draft>true{M3}</draft>{M3}</meta>{M3}</invoke>\n"
        f"{M3}</tool_call>",
        calls=(("store_note", {"title": "007", "tags": [], "meta": {"pages": [7], "draft": True}}),),
    ),
    Case(
        "minimax_m3",
        "tags without the prefix in a string",
        f'{M3}<tool_call>\n{M3}<invoke name="store_note">{M3}<title>\n <b> & </title> {M3}</title>{M3}</invoke>\n'
        f"{M3}</tool_call>",
        calls=(("store_note", {"title": "\n <b> & </title> "}),),
    ),
]

TAGGED_FORMS = [*_QWEN, *_GLM, *_MINICPM, *_DSML, *_MINIMAX]
