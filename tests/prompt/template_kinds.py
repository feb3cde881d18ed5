"""Chat templates in the form of each kind that real ones have: what they refuse, drop, or want otherwise."""

from __future__ import annotations

_REFUSE = "{{ raise_exception('roles must alternate') }}"
_OPEN = "{% if add_generation_prompt %}<a>{% endif %}"

EVERYTHING = (
    """{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}
{%- for m in messages %}<{{ m.role }}>{{ m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}</>{% endfor %}"""
    + _OPEN
)
CONTENT_ONLY = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}" + _OPEN
# Gemma 2's kind.
STRICT = (
    "{% for m in messages %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}"
    + _REFUSE
    + "{% endif %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
    + _OPEN
)
# Mistral's: the system message in the user's last, calls and results beside the turns, ids of nine characters.
MISTRAL = (
    """{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}{% set ns = namespace(i=0) %}
{%- set users = rest | selectattr('role', 'equalto', 'user') | list %}
{%- for m in rest if not m.tool_calls and m.role != 'tool' %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"""
    + _REFUSE
    + """{% endif %}{% endfor %}
{%- for m in rest %}{% set id = m.tool_call_id or (m.tool_calls[0].id if m.tool_calls else '123456789') %}
{%- if id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
{%- if m.role == 'user' %}{% if tools and m == users[-1] %}<tools>{{ tools | tojson }}</tools>{% endif %}
{{- '<user>' + (system + '\n\n' if loop.last and system else '') + m.content + '</>' }}
{%- elif m.tool_calls %}<assistant>{% for c in m.tool_calls %}<call>{{ c.function | tojson }}{{ c.id }}</call>
{%- endfor %}</>
{%- elif m.role == 'tool' %}<tool>{{ m.tool_call_id }}:{{ m.content }}</>
{%- else %}<assistant>{{ m.content }}</>{% endif %}{% endfor %}"""
)
# DeepSeek R1's: of several system messages the last counts, wherever it stands.
LAST_SYSTEM = """{% set ns = namespace(s='') %}{% for m in messages if m.role == 'system' %}{% set ns.s = m.content %}
{%- endfor %}{{ ns.s }}{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}</>{% endfor %}"""
# Its distills: calls only where the content is null, and arguments are text.
NULL_CONTENT = """{% for m in messages %}{% if m.role == 'assistant' and m['content'] is none %}
{%- for c in m.tool_calls %}<call>{{ c.function.name + c.function.arguments }}</call>{% endfor %}
{%- else %}<{{ m.role }}>{{ m['content'] }}</>{% endif %}{% endfor %}"""
# Granite's and Llama 3's: of a message with calls only these.
CALLS_ALONE = """{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}
{%- for m in messages %}<{{ m.role }}>{% if m.tool_calls %}{% for c in m.tool_calls %}<call>{{ c.function | tojson }}
{{- '</call>' }}{% endfor %}{% else %}{{ m.content }}{% endif %}</>{% endfor %}"""
# GLM-4's: no calls, no results.
TALK_ALONE = """{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}
{%- for m in messages if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"""
# Qwen3.5's: there has to be a question, and the system message is the first.
NEEDS_USER = """{% if not messages | selectattr('role', 'equalto', 'user') | list %}{{ raise_exception('no user') }}
{%- endif %}{% for m in messages %}{% if m.role == 'system' and loop.index > 1 %}{{ raise_exception('') }}{% endif %}
{{- '<' + m.role + '>' + m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>
{%- endfor %}</>{% endfor %}"""
# Kimi K2's two: ids that the template makes, in a list of its own, and ids that it takes for names.
APPENDS = """{% set ns = namespace(ids=[], n=0) %}
{%- for m in messages %}<{{ m.role }}>{% for c in m.tool_calls or [] %}
{%- set id = 'functions.' + c.function.name + ':' + ns.n | string %}
{%- set ns.n = ns.n + 1 %}{% set _ = ns.ids.append(id) %}
{{- '<call>' + id + c.function.arguments | tojson }}{% endfor %}
{%- if m.role == 'tool' %}{{ ns.ids.pop(0) }}={% endif %}{{ m.content }}</>{% endfor %}"""
NUMBERED = """{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}
{{- '<call>' + c.id + c.function.arguments | tojson }}{% endfor %}</>{% endfor %}"""
# Values without quotes: Seed-OSS', and that of Llama 3.2's calls in Python.
BARE = """{% for m in messages %}<{{ m.role }}>{{ m.content }}
{%- for c in m.tool_calls or [] %}<call>{{ c.function.name }}
{%- for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{% endfor %}{% endfor %}</>{% endfor %}"""
PYTHON = """{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}(
{%- for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% if not loop.last %}, {% endif %}{% endfor %})]
{%- endfor %}{% endfor %}"""
# Tools in a place, or of a shape, of their own.
NOT_NONE = "{% for t in tools %}<{{ t | tojson }}>{% endfor %}" + CONTENT_ONLY
FUNCTIONS = "{{ 'Functions: ' + functions + ' Today: ' + datetime }}" + CONTENT_ONLY
XML_TOOLS = "{% for t in xml_tools or [] %}<{{ t | tojson }}>{% endfor %}" + CONTENT_ONLY
DESCRIBED = """{% for t in tools %}{% set f = t.function %}{{ f.name + ': ' + f.description }}
{%- for k, v in f.parameters.properties.items() %} {{ k + ': ' + v.type + ' ' + v.description }}{% endfor %}{% endfor %}
{{- '' }}"""
DESCRIBED += CONTENT_ONLY
IN_SYSTEM = """{% for m in messages %}<{{ m.role }}>{{ m.content }}
{%- if m.role == 'system' and tools %}{{ tools | tojson }}{% endif %}</>{% endfor %}"""
GENERATOR = "{% if tools %}{{ tools | map(attribute='function') | tojson }}{% endif %}" + CONTENT_ONLY

ALL = {name: value for name, value in dict(globals()).items() if name.isupper() and not name.startswith("_")}
DROPS_TEXT_BESIDE_CALLS = {"MISTRAL"}
