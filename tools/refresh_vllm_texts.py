"""Compare the texts of a vLLM release with the ones `vllm_diag` knows, and add the release.

    python tools/refresh_vllm_texts.py WHEEL --release 0.34.0 --since OLDER_WHEEL
    python tools/refresh_vllm_texts.py WHEEL --release 0.34.0 --write

A wheel is given as the file or as the folder it was unpacked into. Nothing of it is imported or
run: its Python files are parsed, and what would be logged, raised, asserted, shown as a progress
bar or returned by ``__repr__`` is worked out as a text with gaps. Printed are

1. the known texts that this release holds, as a count;
2. the known texts of the release before that are gone, each with the text that is most like it;
3. figures that are printed another way than the data says;
4. texts that are not known and likely matter, as lines ready to paste into the data.

``--since`` leaves out of part 4 what the older release held already; without it, everything
that was once judged not to matter is shown again. ``--write`` adds the release to the data
and to the ranges of the texts that it holds. The data is ``vllm_diag/data/vllm_texts.jsonl``:
the releases in the first line, then one text a line,

    {"code": message, "text": wording, "releases": ranges, "as": [...], "file": ..., "slots": {...}}

in the notation of `vllm_diag.wording`. ``as`` holds levels (INFO, ...), exception classes,
WARNINGS.WARN, PROGRESS for the title of a progress bar; a ``?`` in part 4 is for you to fill
in. A slot's kind is a unit and how it is printed:

=====================  ====================================================================
``gib r2``             GiB rounded to at most two decimals, as `format_gib` prints them
``gib .2f``            GiB with two decimals; so ``gib .4f``, ``mib .0f``, ``gb .2f`` (10^9)
``gib raw``            GiB with all the decimals that Python prints
``bytes``              a whole number of bytes
``s .2f``, ``ms``      seconds, milliseconds, ``min`` minutes; ``s`` alone: as Python prints it
``% .1f``              per cent; ``fraction`` is a share of one, ``x .2f`` a factor
``tokens``             a number of tokens; ``tokens ,`` with thousands separators
``tokens/s .1f``       a rate
``count``              another whole number; ``blocks``, ``requests``, ``items``, ``open files``,
                       ``process id``, ``index 03d`` say what is counted; ``integer`` may be < 0
``number``             a number that is not whole
``name``               one word; ``name repr`` in quotes; ``identifier`` of letters, digits and _
``version``, ``url``   what they say; so ``path``, ``device`` (cuda:0), ``device type`` (cuda),
                       ``architecture``, ``address``, ``settings`` (key=value, ...)
``words``              anything
``[...]``              a list of texts: the slot only ever holds one of these
``A to 0.13.0; B``     printed as A up to that release and as B since
=====================  ====================================================================

The kinds in part 4 are guesses from the format, the words next to the figure and the name of
the expression. What cannot be worked out (a text built in another module, read from a file,
printed by compiled code) becomes a gap or is not seen: see ``docs/new-release.md``.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import json
import re
import string
import sys
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vllm_diag.quantities import Reader
from vllm_diag.wording import Compiled, compile_wording

DATA = Path(__file__).resolve().parent.parent / "vllm_diag" / "data" / "vllm_texts.jsonl"

# --------------------------------------------------------------------------------------------
# Texts with gaps


@dataclass(frozen=True, slots=True)
class Literal:
    """Characters that are always printed."""

    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A value that is only known at run time; ``how`` is its format, ``source`` its expression."""

    name: str
    how: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Either:
    """One of several templates, an empty one for a part that may be absent."""

    options: tuple[Template, ...]


Node = Literal | Figure | Either
Template = tuple[Node, ...]

# More alternatives than this are not worked out: no real message has them.
_MOST_VARIANTS = 64


def concat(*parts: Template) -> Template:
    """Return the templates one after the other, literals merged."""
    nodes: list[Node] = []
    for node in itertools.chain(*parts):
        last = nodes[-1] if nodes else None
        if isinstance(node, Literal) and isinstance(last, Literal):
            nodes[-1] = Literal(last.text + node.text)
        elif not isinstance(node, Literal) or node.text:
            nodes.append(node)
    return tuple(nodes)


def literal(text: str) -> Template:
    """Return the template that prints ``text``."""
    return (Literal(text),) if text else ()


def choice(options: Iterable[Template]) -> Template:
    """Return the template that prints one of ``options``, an option inside an option spread out."""
    flat: list[Template] = []
    for option in options:
        inner = option[0] if len(option) == 1 else None
        flat += inner.options if isinstance(inner, Either) else (option,)
    unique = tuple(dict.fromkeys(flat))
    return unique[0] if len(unique) == 1 else (Either(unique),)


def merge(one: Template, two: Template) -> Template:
    """Return what is printed when either template may have been built; a longer one adds a part."""
    for short, long in ((one, two), (two, one)):
        rest = _after(short, long)
        if rest is not None:
            return concat(short, choice([rest, ()]) if rest else ())
    return choice([one, two])


def _after(short: Template, long: Template) -> Template | None:
    """Return what ``long`` prints after ``short``; None when it does not begin with it."""
    if not short:
        return long
    *head, last = short
    if long[: len(head)] != tuple(head) or len(long) < len(short):
        return None
    there = long[len(head)]
    if there == last:
        return long[len(short) :]
    if isinstance(last, Literal) and isinstance(there, Literal) and there.text.startswith(last.text):
        return concat(literal(there.text[len(last.text) :]), long[len(short) :])
    return None


def variants(template: Template, whole: bool) -> list[Template]:
    """Return the templates without choices that ``template`` stands for.

    ``whole``: only those with every part that may be absent.
    """
    found: list[Template] = [()]
    for node in template:
        ways = _ways(node, whole) if isinstance(node, Either) else [(node,)]
        found = [concat(head, way) for head, way in itertools.product(found, ways)][:_MOST_VARIANTS]
    return found


def _ways(node: Either, whole: bool) -> list[Template]:
    options = [option for option in node.options if option or not whole] or [()]
    return [way for option in options for way in variants(option, whole)]


def words_of(template: Template) -> str:
    """Return the literal characters of a template, a blank for each figure."""
    out = []
    for node in template:
        if isinstance(node, Literal):
            out.append(node.text)
        elif isinstance(node, Figure):
            out.append(" ")
        else:
            out.append(" ".join(words_of(option) for option in node.options))
    return "".join(out)


def notation(template: Template) -> str:
    """Return the template in the notation of `vllm_diag.wording`."""
    out = []
    for node in template:
        if isinstance(node, Literal):
            out.append(node.text.replace("{", "{{").replace("}", "}}"))
        elif isinstance(node, Figure):
            out.append(f"{{{node.name}}}")
        else:
            options = [notation(option) for option in node.options]
            some = [option for option in options if option]
            out.append(f"⟦{some[0]}⟧" if len(some) == 1 < len(options) else f"⟨{'|'.join(options)}⟩")
    return "".join(out)


# --------------------------------------------------------------------------------------------
# Expressions to texts


@dataclass(frozen=True, slots=True)
class Parts:
    """A list of texts that is built up and joined."""

    items: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Levels:
    """A name for one or more methods of a logger: ``log = logger.info if ... else logger.debug``."""

    names: tuple[str, ...]


Value = Template | Parts | Levels
Scope = dict[str, Value | None]

_PERCENT = re.compile(
    r"%(?:\((?P<key>\w+)\))?(?P<spec>[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?)[hlL]?(?P<type>[diouxXeEfFgGcrsa%])"
)
_TRANSPARENT = frozenset(("str", "repr", "round", "int", "float", "format_gib", "sorted", "list", "tuple", "cast"))
_SAME_AS_OWNER = frozenset(("strip", "rstrip", "lstrip", "upper", "lower"))
_SAME_AS_ARGUMENT = frozenset(("dedent", "cleandoc", "Template"))
_LEVELS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "warn": "WARNING",
    "error": "ERROR",
    "critical": "CRITICAL",
    "fatal": "CRITICAL",
    "exception": "ERROR",
}
_PRINT_ONCE = re.compile(r"(?:print_|log_)?(debug|info|warning|error)_once$")


@dataclass(slots=True)
class Source:
    """What one module defines: functions and classes by name, and the constants of its top level."""

    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    top: Scope = field(default_factory=dict)
    _attributes: dict[str, dict[str, list[ast.expr | ast.FunctionDef]]] = field(default_factory=dict)

    def attributes(self, owner: ast.ClassDef) -> Mapping[str, Sequence[ast.expr | ast.FunctionDef]]:
        """Return what a class assigns to each attribute of ``self``, and its properties."""
        if owner.name not in self._attributes:
            own: dict[str, list[ast.expr | ast.FunctionDef]] = defaultdict(list)
            for item in ast.walk(owner):
                if isinstance(item, ast.FunctionDef) and _is_property(item):
                    own[item.name].append(item)
                elif isinstance(item, ast.Assign | ast.AnnAssign) and item.value:
                    for name in _own_targets(item):
                        own[name].append(item.value)
            for item in owner.body:
                if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                    own[item.targets[0].id].append(item.value)
            self._attributes[owner.name] = own
        return self._attributes[owner.name]


class Expressions:
    """Works out what an expression prints, within one class of one module."""

    def __init__(self, source: Source, owner: ast.ClassDef | None = None, depth: int = 0) -> None:
        self.source = source
        self.owner = owner
        self.depth = depth

    def text(self, node: ast.expr | None, scope: Scope) -> Template | None:
        """Return what the expression prints when it is a text; None when it is not, or is unknown."""
        value = self.value(node, scope)
        return value if isinstance(value, tuple) else None

    def value(self, node: ast.expr | None, scope: Scope) -> Value | None:
        """Return the text, list of texts or logger method that the expression is; None otherwise."""
        method = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        return method(node, scope) if method else None

    def printed(self, node: ast.expr, scope: Scope, how: str = "") -> Template:
        """Return what the expression adds to a text: its own text, or a figure."""
        if isinstance(node, ast.Constant) and not isinstance(node.value, str | bytes):
            return literal(_formatted(node.value, how))
        text = self.text(node, scope)
        if text is None or (how == "repr" and not all(isinstance(n, Literal) for n in text)):
            return (_figure(node, how),)
        if how == "repr":
            return literal(repr("".join(n.text for n in text if isinstance(n, Literal))))
        return text

    def _of_constant(self, node: ast.Constant, scope: Scope) -> Value | None:
        return literal(node.value) if isinstance(node.value, str) else None

    def _of_joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Value:
        parts: list[Template] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                parts.append(self.printed(part.value, scope, _how(part)))
            elif isinstance(part, ast.Constant):
                parts.append(literal(str(part.value)))
        return concat(*parts)

    def _of_binop(self, node: ast.BinOp, scope: Scope) -> Value | None:
        if isinstance(node.op, ast.Mod):
            left = self.text(node.left, scope)
            return None if left is None else percent(left, self._percent_arguments(node.right, scope))
        if not isinstance(node.op, ast.Add):
            return None
        left_value, right_value = self.value(node.left, scope), self.value(node.right, scope)
        if isinstance(left_value, Parts) and isinstance(right_value, Parts):
            return Parts(left_value.items + right_value.items)
        if not isinstance(left_value, tuple) and not isinstance(right_value, tuple):
            return None
        return concat(self.printed(node.left, scope), self.printed(node.right, scope))

    def _of_ifexp(self, node: ast.IfExp, scope: Scope) -> Value | None:
        one, two = self.value(node.body, scope), self.value(node.orelse, scope)
        if isinstance(one, Levels) and isinstance(two, Levels):
            return Levels(one.names + two.names)
        if not isinstance(one, tuple) and not isinstance(two, tuple):
            return None
        return choice([self.printed(node.body, scope), self.printed(node.orelse, scope)])

    def _of_boolop(self, node: ast.BoolOp, scope: Scope) -> Value | None:
        if not isinstance(node.op, ast.Or) or self.text(node.values[-1], scope) is None:
            return None
        return choice(self.printed(value, scope) for value in node.values)

    def _of_name(self, node: ast.Name, scope: Scope) -> Value | None:
        return scope[node.id] if node.id in scope else self.source.top.get(node.id)

    def _of_attribute(self, node: ast.Attribute, scope: Scope) -> Value | None:
        if node.attr.removesuffix("_once") in _LEVELS and _is_logger(node.value):
            return Levels((_LEVELS[node.attr.removesuffix("_once")],))
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return self._own(node.attr)
        return None

    def _of_list(self, node: ast.List | ast.Tuple, scope: Scope) -> Value | None:
        if not any(self.text(item, scope) is not None for item in node.elts):
            return Parts(()) if not node.elts else None
        return Parts(tuple(self.printed(item, scope) for item in node.elts))

    _of_tuple = _of_list

    def _of_call(self, node: ast.Call, scope: Scope) -> Value | None:
        name, called = _called(node)
        if name == "join" and called is not None and node.args:
            return self._joined(self.text(called, scope), node.args[0], scope)
        if name == "format" and called is not None:
            text = self.text(called, scope)
            return None if text is None else self._braces(text, node, scope)
        if name in _SAME_AS_OWNER:
            return _changed(self.text(called, scope), name)
        if name in _SAME_AS_ARGUMENT and node.args:
            return self.text(node.args[0], scope)
        if name in ("substitute", "safe_substitute") and called is not None:
            return self._dollars(self.text(called, scope), node, scope)
        if name == "partial" and node.args:
            return self.value(node.args[0], scope)
        return self._returned(node, scope)

    def _joined(self, between: Template | None, items: ast.expr, scope: Scope) -> Template | None:
        parts = self.value(items, scope)
        if between is None:
            return None
        if not isinstance(parts, Parts):
            return (_figure(items, ""),)
        out: Template = ()
        for index, item in enumerate(parts.items):
            first = index == 0
            if len(item) == 1 and isinstance(item[0], Either) and () in item[0].options and not first:
                out = concat(out, choice(concat(between, o) if o else o for o in item[0].options))
            else:
                out = concat(out, () if first else between, item)
        return out

    def _braces(self, text: Template, node: ast.Call, scope: Scope) -> Template:
        given: dict[str, ast.expr] = {str(i): arg for i, arg in enumerate(node.args)}
        given |= {kw.arg: kw.value for kw in node.keywords if kw.arg}
        counter = itertools.count()
        out: list[Template] = []
        for part in text:
            if not isinstance(part, Literal):
                out.append((part,))
                continue
            try:
                pieces = list(string.Formatter().parse(part.text))
            except ValueError:  # braces of a part that is formatted elsewhere
                return text
            for before, key, spec, conversion in pieces:
                out.append(literal(before))
                if key is not None:
                    how = "repr" if conversion == "r" else spec or ""
                    key = key or str(next(counter))
                    value = given.get(key)
                    out.append(self.printed(value, scope, how) if value else (Figure(_identifier(key), how, key),))
        return concat(*out)

    def _dollars(self, text: Template | None, node: ast.Call, scope: Scope) -> Template | None:
        # A mapping that is not spelled out holds colours in vLLM: nothing that a reader of the text sees.
        given = {k.arg: k.value for k in node.keywords if k.arg}
        out: list[Template] = []
        for part in text or ():
            if not isinstance(part, Literal):
                out.append((part,))
                continue
            pieces = re.split(r"\$\{?(\w+)\}?", part.text)
            for before, key in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
                out += [literal(before), self.printed(given[key], scope) if key in given else ()]
        return None if text is None else concat(*out)

    def _percent_arguments(self, node: ast.expr, scope: Scope) -> Arguments:
        if isinstance(node, ast.Dict):
            named = {k.value: v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)}
            return lambda index, key, how: self.printed(named[key], scope, how) if key in named else None
        return self.arguments(node.elts if isinstance(node, ast.Tuple) else [node], scope)

    def arguments(self, nodes: Sequence[ast.expr], scope: Scope) -> Arguments:
        """Return the arguments of a %-format, as `percent` takes them."""
        starred = next((i for i, n in enumerate(nodes) if isinstance(n, ast.Starred)), len(nodes))
        return lambda index, key, how: self.printed(nodes[index], scope, how) if index < starred and not key else None

    def _own(self, name: str) -> Template | None:
        """Return the text of ``self.name``: assigned in the class, or returned by its property."""
        found: list[Template | None] = []
        for owner in self._line():
            for item in self.source.attributes(owner).get(name, ()):
                if isinstance(item, ast.FunctionDef):
                    found.append(self._returns(item, {}))
                else:
                    found.append(self._deeper(lambda deeper, value=item: deeper.text(value, {})))  # type: ignore[misc]
        known = [text for text in found if text is not None]
        return choice(known) if known and len(known) == len(found) else None

    def _line(self) -> Iterator[ast.ClassDef]:
        """Yield the class and the ones it derives from, as far as they are in the same module."""
        todo = [self.owner] if self.owner else []
        seen: set[str] = set()
        while todo:
            owner = todo.pop(0)
            if owner.name not in seen:
                seen.add(owner.name)
                yield owner
                bases = (self.source.classes.get(b.id) for b in owner.bases if isinstance(b, ast.Name))
                todo += [base for base in bases if base]

    def _returned(self, node: ast.Call, scope: Scope) -> Template | None:
        """Return what a function of the same module returns, when that is always a text."""
        function = self._function(node.func)
        if function is None:
            return None
        bound: Scope = {}
        names = [a.arg for a in function.args.args]
        if names[:1] in (["self"], ["cls"]) and isinstance(node.func, ast.Attribute):
            names = names[1:]
        for name, arg in [*zip(names, node.args, strict=False), *((k.arg, k.value) for k in node.keywords if k.arg)]:
            bound[name] = self.value(arg, scope)
        text = self._returns(function, bound)
        # What only passes a figure on is better named by the call itself.
        says = any(isinstance(n, Either) or (isinstance(n, Literal) and n.text.strip()) for n in text or ())
        return text if says else None

    def _function(self, node: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        if isinstance(node, ast.Name):
            return self.source.functions.get(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            methods = (i for owner in self._line() for i in owner.body if isinstance(i, ast.FunctionDef))
            return next((m for m in methods if m.name == node.attr), None)
        return None

    def _returns(self, function: ast.FunctionDef | ast.AsyncFunctionDef, bound: Scope) -> Template | None:
        def run(expressions: Expressions) -> Template | None:
            walk = Walk(expressions, lambda *_: None)
            walk.function(function, {}, bound)
            known = [text for text in walk.returned if text is not None]
            return choice(known) if known and len(known) == len(walk.returned) else None

        return self._deeper(run)

    def _deeper(self, run: Callable[[Expressions], Template | None]) -> Template | None:
        # Two calls deep is as far as any message goes; recursion must end.
        return run(Expressions(self.source, self.owner, self.depth + 1)) if self.depth < 2 else None


def _changed(text: Template | None, method: str) -> Template | None:
    """Return a text after ``upper`` or ``lower``; blanks at the ends, which ``strip`` takes, do not count."""
    if text is None or method not in ("upper", "lower"):
        return text
    known = all(isinstance(node, Literal) for node in text)
    return literal(getattr("".join(n.text for n in text if isinstance(n, Literal)), method)()) if known else None


Arguments = Callable[[int, str | None, str], Template | None]


def percent(template: Template, arguments: Arguments) -> Template:
    """Return the template with its %-conversions replaced by what ``arguments`` prints for each."""
    taken = 0

    def one(found: re.Match[str], before: str) -> Template:
        nonlocal taken
        if found["type"] == "%":
            return literal("%")
        how = "repr" if found["type"] in "ra" else _printf_how(found["spec"], found["type"])
        got = arguments(taken, found["key"], how)
        taken += 1
        return got if got is not None else (Figure(_identifier(found["key"] or _label(before)), how),)

    def alternatives(options: Sequence[Template]) -> Iterator[Template]:
        nonlocal taken
        before, most = taken, taken
        for option in options:
            taken = before
            yield spread(option)
            most = max(most, taken)
        taken = most

    def spread(nodes: Template) -> Template:
        out: list[Template] = []
        for node in nodes:
            if isinstance(node, Literal):
                at = 0
                for found in _PERCENT.finditer(node.text):
                    out += [literal(node.text[at : found.start()]), one(found, node.text[: found.start()])]
                    at = found.end()
                out.append(literal(node.text[at:]))
            elif isinstance(node, Either):
                out.append((Either(tuple(alternatives(node.options))),))
            else:
                out.append((node,))
        return concat(*out)

    return spread(template)


def _printf_how(spec: str, kind: str) -> str:
    if kind in "diu":
        return f"{spec}d" if spec else "d"
    if kind == "f":
        return f"{spec.lstrip('-+ #') or '.6'}f"
    return spec + kind if kind in "eg" else ""


def _formatted(value: object, how: str) -> str:
    if how == "repr":
        return repr(value)
    try:
        return format(value, how) if how else str(value)
    except (TypeError, ValueError):
        return str(value)


def _how(node: ast.FormattedValue) -> str:
    """Return how an f-string prints a value: ``.2f``, ``,``, ``r2`` (format_gib), ``repr``."""
    if node.conversion == ord("r"):
        return "repr"
    spec = node.format_spec
    if not isinstance(spec, ast.JoinedStr):
        return ""
    return "".join(str(v.value) for v in spec.values if isinstance(v, ast.Constant))


def _figure(node: ast.expr, how: str) -> Figure:
    source = ast.unparse(node)
    if not how and re.match(r"(?:\w+\.)*(?:format_gib|GiB)\(", source):
        how = "r2"
    elif not how and (rounded := re.match(r"(?:int|round|float)\((.*), (\d)\)$", source)):
        how = f"r{rounded[2]}"
    elif source.startswith("repr("):
        how = "repr"
    return Figure(_name_of(node), how, source)


def _name_of(node: ast.expr) -> str:
    """Return a name for what an expression prints: the last word of it that says something."""
    if isinstance(node, ast.Name):
        return _identifier(node.id)
    if isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) and node.value.id not in ("self", "cls") else ""
        return _identifier(f"{owner}_{node.attr}" if node.attr in ("name", "value", "type", "pid") else node.attr)
    if isinstance(node, ast.Call):
        name, called = _called(node)
        if name in _SAME_AS_OWNER and called is not None:
            return _name_of(called)
        if name == "len" and node.args:
            return f"num_{_name_of(node.args[0])}"
        if (name in _TRANSPARENT or name in ("join", "min", "max")) and node.args:
            return _name_of(node.args[0])
        return _identifier(re.sub(r"^(?:get|format|compute)_", "", name) or (_name_of(called) if called else ""))
    if isinstance(node, ast.Subscript):
        key = node.slice
        named = isinstance(key, ast.Constant) and isinstance(key.value, str)
        return _identifier(ast.literal_eval(key)) if named else _name_of(node.value)
    for part in ("left", "operand", "body", "elt", "value"):
        inner = getattr(node, part, None)
        if isinstance(inner, ast.expr) and not isinstance(inner, ast.Constant):
            return _name_of(inner)
    right = getattr(node, "right", None)
    return _name_of(right) if isinstance(right, ast.expr) and not isinstance(right, ast.Constant) else "value"


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text).strip("_").lower()
    return name if name and not name[0].isdigit() else "value"


def _label(before: str) -> str:
    """Return the words in front of a figure, which often name it: ``..., Running: `` is running."""
    words = re.findall(r"[A-Za-z]+", re.split(r"[,;.]\s|\n", before.rstrip(" :=("))[-1])
    return "_".join(words[-3:])


def _called(node: ast.Call) -> tuple[str, ast.expr | None]:
    """Return the last name of what is called, and what it is an attribute of."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, node.func.value
    return (node.func.id if isinstance(node.func, ast.Name) else ""), None


def _is_logger(node: ast.expr) -> bool:
    while isinstance(node, ast.Call):
        node = node.func
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(re.search("log|lgr", name.lower()))


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and "property" in d.id for d in function.decorator_list)


def _own_targets(item: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    for target in item.targets if isinstance(item, ast.Assign) else [item.target]:
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            yield target.attr


# --------------------------------------------------------------------------------------------
# Statements to records


@dataclass(frozen=True, slots=True)
class Found:
    """One text of a release: what it prints, how, and where."""

    template: Template
    printed_as: tuple[str, ...]
    file: str
    line: int


_NO_CALLS_BELOW = (
    ast.stmt,
    ast.ExceptHandler,
    ast.match_case,
    ast.Name,
    ast.Constant,
    ast.expr_context,
    ast.operator,
)
# What __repr__ or __str__ returns: who logs the object, and at which level, is not known.
_OBJECT = "?"
Record = Callable[[Template, tuple[str, ...], int], None]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Walk:
    """Follows the statements of one scope, knowing at each what its names print."""

    def __init__(self, expressions: Expressions, record: Record) -> None:
        self.expressions = expressions
        self.record = record
        self.returned: list[Template | None] = []

    def function(self, node: _Function, around: Scope, given: Scope | None = None) -> None:
        """Follow a function; ``around`` holds the names of the scope it is in, ``given`` its arguments."""
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        own: Scope = {a.arg: None for a in every if a}
        self.block(node.body, around | own | (given or {}))

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> bool:
        """Follow statements, changing ``scope``; return whether the end of them is reached."""
        for statement in body:
            self._calls(statement, scope)
            method = getattr(self, f"_at_{type(statement).__name__.lower()}", None)
            if method is not None and method(statement, scope) is False:
                return False
        return True

    # --- names ---------------------------------------------------------------------------------

    def _at_assign(self, node: ast.Assign, scope: Scope) -> None:
        for target in node.targets:
            self._bind(target, node.value, scope)

    def _at_annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self._bind(node.target, node.value, scope)

    def _bind(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = self.expressions.value(value, scope)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._bind(one, its, scope)
        else:
            self._forget(target, scope)

    def _forget(self, target: ast.expr, scope: Scope) -> None:
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                scope[name.id] = None

    def _at_augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        if isinstance(node.target, ast.Name) and isinstance(node.op, ast.Add):
            sum_ = ast.BinOp(ast.Name(node.target.id, ast.Load()), ast.Add(), node.value)
            scope[node.target.id] = self.expressions.value(ast.copy_location(sum_, node), scope)
        else:
            self._forget(node.target, scope)

    def _at_expr(self, node: ast.Expr, scope: Scope) -> None:
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
            return
        owner = call.func.value
        parts = scope.get(owner.id) if isinstance(owner, ast.Name) else None
        if isinstance(owner, ast.Name) and isinstance(parts, Parts):
            if call.func.attr == "append":
                scope[owner.id] = Parts((*parts.items, self.expressions.printed(call.args[0], scope)))
            elif call.func.attr == "extend":
                more = self.expressions.value(call.args[0], scope)
                scope[owner.id] = Parts(parts.items + more.items) if isinstance(more, Parts) else None

    # --- branches ------------------------------------------------------------------------------

    def _at_if(self, node: ast.If, scope: Scope) -> bool:
        return self._branches([node.body, node.orelse], scope)

    def _at_match(self, node: ast.Match, scope: Scope) -> bool:
        return self._branches([case.body for case in node.cases] + [[]], scope)

    def _branches(self, bodies: Sequence[Sequence[ast.stmt]], scope: Scope) -> bool:
        ends = []
        for body in bodies:
            own = dict(scope)
            if self.block(body, own):
                ends.append(own)
        return _meet(ends, scope)

    def _at_for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        self._forget(node.target, scope)
        self._branches([node.body, []], scope)
        self.block(node.orelse, scope)

    _at_asyncfor = _at_for

    def _at_while(self, node: ast.While, scope: Scope) -> None:
        self._branches([node.body, []], scope)
        self.block(node.orelse, scope)

    def _at_with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
        for item in node.items:
            if item.optional_vars is not None:
                self._forget(item.optional_vars, scope)
        ends = self.block(node.body, scope)
        return ends or any("suppress" in ast.unparse(item.context_expr) for item in node.items)

    _at_asyncwith = _at_with

    def _at_try(self, node: ast.Try, scope: Scope) -> bool:
        before = dict(scope)
        body = self.block([*node.body, *node.orelse], scope)
        ends = [dict(scope)] if body else []
        for handler in node.handlers:
            own = before | {handler.name: None} if handler.name else dict(before)
            if self.block(handler.body, own):
                ends.append(own)
        goes_on = _meet(ends, scope)
        return self.block(node.finalbody, scope) and goes_on

    _at_trystar = _at_try

    def _at_return(self, node: ast.Return, scope: Scope) -> bool:
        self.returned.append(self.expressions.text(node.value, scope))
        return False

    def _at_raise(self, node: ast.Raise, scope: Scope) -> bool:
        call = node.exc
        if isinstance(call, ast.Call) and not _is_exception(call):
            self._message(call, (_called(call)[0],), scope)
        return False

    def _at_break(self, node: ast.Break, scope: Scope) -> bool:
        return False

    _at_continue = _at_break

    def _at_assert(self, node: ast.Assert, scope: Scope) -> None:
        text = self.expressions.text(node.msg, scope)
        if text is not None:
            self.record(text, ("AssertionError",), node.lineno)

    def _at_functiondef(self, node: _Function, scope: Scope) -> None:
        scope[node.name] = None
        Walk(self.expressions, self.record).function(node, scope)

    _at_asyncfunctiondef = _at_functiondef

    def _at_classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        inner = Walk(Expressions(self.expressions.source, node), self.record)
        inner.block(node.body, dict(scope))
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name in ("__repr__", "__str__"):
                text = inner.expressions._returns(method, {})
                if text is not None:
                    self.record(text, (_OBJECT,), method.lineno)

    # --- calls ---------------------------------------------------------------------------------

    def _calls(self, statement: ast.stmt, scope: Scope) -> None:
        """Record the texts that a statement itself logs or puts into an exception."""
        todo: list[ast.AST] = [statement]
        while todo:
            node = todo.pop()
            if type(node) is ast.Call:
                self._call(node, scope)
            for name in node._fields:
                inner = getattr(node, name)
                for child in inner if type(inner) is list else (inner,):
                    # Statements inside are followed on their own; leaves hold no call.
                    if isinstance(child, ast.AST) and not isinstance(child, _NO_CALLS_BELOW):
                        todo.append(child)

    def _call(self, node: ast.Call, scope: Scope) -> None:
        name, called = _called(node)
        may_log = isinstance(node.func, ast.Name) or name.removesuffix("_once") in _LEVELS
        value = self.expressions.value(node.func, scope) if may_log else None
        if isinstance(value, Levels):
            self._log(node, value.names, 0, scope)
        elif name == "log" and called is not None and _is_logger(called) and len(node.args) > 1:
            self._log(node, _level_of(node.args[0]), 1, scope)
        elif (name == "warn" and isinstance(called, ast.Name) and called.id == "warnings") or name == "warn_deprecated":
            self._log(node, ("WARNINGS.WARN",), 0, scope)
        elif once := _PRINT_ONCE.match(name):
            self._log(node, (_LEVELS[once[1]],), 0, scope)
        elif name == "__init__" and isinstance(called, ast.Call) and self._is_exception_class():
            self._message(node, (self.expressions.owner.name,), scope)  # type: ignore[union-attr]
        elif _is_exception(node):
            self._message(node, (name,), scope)
        else:
            self._bar(node, scope)

    def _log(self, node: ast.Call, levels: tuple[str, ...], at: int, scope: Scope) -> None:
        text = self.expressions.text(node.args[at], scope) if len(node.args) > at else None
        if text is None:
            return
        arguments = node.args[at + 1 :]
        if arguments and "WARNINGS.WARN" not in levels:
            text = percent(text, self.expressions.arguments(arguments, scope))
        self.record(text, tuple(dict.fromkeys(levels)), node.lineno)

    def _message(self, node: ast.Call, printed_as: tuple[str, ...], scope: Scope) -> None:
        named = [k.value for k in node.keywords if k.arg in ("message", "msg", "detail", "reason", "err_msg")]
        for arg in [*node.args, *named]:
            text = self.expressions.text(arg, scope)
            if text:
                self.record(text, printed_as, node.lineno)
                return

    def _bar(self, node: ast.Call, scope: Scope) -> None:
        for keyword in node.keywords:
            if keyword.arg == "desc" and (text := self.expressions.text(keyword.value, scope)):
                self.record(text, ("PROGRESS",), node.lineno)

    def _is_exception_class(self) -> bool:
        owner = self.expressions.owner
        return owner is not None and bool(re.search(r"(?:Error|Exception)$", owner.name))


def _meet(ends: Sequence[Scope], scope: Scope) -> bool:
    """Put into ``scope`` what its names print after branches; return whether any branch reaches its end."""
    for name in {name for end in ends for name in end}:
        scope[name] = _joined_values([end[name] for end in ends if name in end], name)
    return bool(ends)


def _joined_values(values: Sequence[Value | None], name: str) -> Value | None:
    """Return what a name prints after branches that gave it these values."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if all(isinstance(value, tuple) for value in known):
        merged: Template = known[0]  # type: ignore[assignment]
        for value in known[1:]:
            merged = merge(merged, value)  # type: ignore[arg-type]
        return merged if len(known) == len(values) else choice([merged, (Figure(_identifier(name), "", name),)])
    if all(isinstance(value, Parts) for value in known):
        return _joined_parts(known)  # type: ignore[arg-type]
    if all(isinstance(value, Levels) for value in known):
        return Levels(tuple(name for value in known for name in value.names))  # type: ignore[union-attr]
    return None


def _joined_parts(lists: Sequence[Parts]) -> Parts | None:
    shortest = min(lists, key=lambda parts: len(parts.items))
    start = len(shortest.items)
    if any(parts.items[:start] != shortest.items for parts in lists):
        return None
    more = [tuple(parts.items[start:]) for parts in lists]
    longest = max(more, key=len)
    if any(extra and extra != longest for extra in more):
        return None
    optional = not all(more)
    return Parts(shortest.items + tuple(choice([item, ()]) if optional else item for item in longest))


def _is_exception(node: ast.Call) -> bool:
    return bool(re.search(r"(?:Error|Exception|Exit|Interrupt)$", _called(node)[0]))


def _level_of(node: ast.expr) -> tuple[str, ...]:
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return (name if name in _LEVELS.values() else "INFO",)


# --------------------------------------------------------------------------------------------
# A release


@dataclass(slots=True)
class Release:
    """The texts of one unpacked release, and the files that could not be read."""

    found: list[Found] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)


class Wheel:
    """A wheel, packed or unpacked: its Python sources, and the versions that its metadata name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive = zipfile.ZipFile(path) if zipfile.is_zipfile(path) else None
        # The package itself will do for a folder.
        self.root = path.parent if path.name == "vllm" else path
        if "vllm/__init__.py" not in self.names():
            raise SystemExit(f"{path}: no package vllm in here")

    def names(self) -> list[str]:
        """Return the names of the files of the package, in order."""
        if self.archive:
            return sorted(name for name in self.archive.namelist() if name.startswith("vllm/"))
        return sorted(path.relative_to(self.root).as_posix() for path in (self.root / "vllm").rglob("*.py"))

    def read(self, name: str) -> bytes:
        """Return what a file holds."""
        return self.archive.read(name) if self.archive else (self.root / name).read_bytes()

    def versions(self) -> set[str]:
        """Return the versions that the metadata beside the package names; none where there is no metadata."""
        inside = self.archive.namelist() if self.archive else [path.name for path in self.root.glob("*.dist-info")]
        return {found[1] for name in inside if (found := re.match(r"vllm\w*-([^-/]+)\.dist-info", name))}


def read_release(path: Path) -> Release:
    """Return every text of the vLLM package at ``path``, in the order of its files and lines."""
    wheel = Wheel(path)
    release = Release()
    for name in wheel.names():
        if name.endswith(".py"):
            file = name.removeprefix("vllm/")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # invalid escapes in vLLM's own strings
                    tree = ast.parse(wheel.read(name))
                release.found += read_module(tree, file)
            except (SyntaxError, ValueError, RecursionError) as error:
                release.broken[file] = str(error)
    return release


def read_module(tree: ast.Module, name: str) -> list[Found]:
    """Return the texts of one module, each once."""
    source = Source()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            source.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            source.classes[node.name] = node
    found: dict[tuple[Template, tuple[str, ...]], Found] = {}

    def record(template: Template, printed_as: tuple[str, ...], line: int) -> None:
        if re.search(r"[A-Za-z]{2}", words_of(template)):
            found.setdefault((template, printed_as), Found(template, printed_as, name, line))

    walk = Walk(Expressions(source), lambda *_: None)
    quiet = [s for s in tree.body if not isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    walk.block(quiet, source.top)
    Walk(Expressions(source), record).block(tree.body, dict(source.top))
    return sorted(found.values(), key=lambda f: f.line)


# --------------------------------------------------------------------------------------------
# The data


@dataclass(slots=True)
class Known:
    """One line of the data, ready to be looked for."""

    row: dict[str, Any]
    releases: frozenset[str]

    @property
    def text(self) -> str:
        """The wording, as the data has it."""
        return str(self.row["text"])


@dataclass(slots=True)
class Data:
    """The releases that were looked at, oldest first, and the known texts."""

    order: list[str]
    known: list[Known]

    def of(self, release: str) -> list[Known]:
        """Return the texts that ``release`` holds, by the data."""
        return [known for known in self.known if release in known.releases]

    def before(self, release: str) -> str:
        """Return the newest release in the data that is older than ``release``."""
        older = [r for r in self.order if version_key(r) < version_key(release)]
        if not older:
            raise SystemExit(f"{release} is older than every release in the data")
        return older[-1]


def version_key(release: str) -> tuple[int, ...]:
    """Return a number to sort a release by; `SystemExit` for anything but a final or post release."""
    if not re.fullmatch(r"\d+(?:\.\d+)*(?:\.post\d+)?", release):
        raise SystemExit(f"{release!r} is no final release such as 0.34.0")
    return tuple(int(number) for number in re.findall(r"\d+", release))


def load(path: Path) -> Data:
    """Return the data in ``path``."""
    head, *rows = path.read_text("utf-8").splitlines()
    order = list(json.loads(head)["releases"])
    return Data(order, [Known(row, _expand(row["releases"], order)) for row in map(json.loads, rows)])


def dump(data: Data) -> str:
    """Return the data as it is written down, one text a line in the order it has."""
    lines: list[dict[str, Any]] = [{"releases": data.order}]
    lines += [known.row | {"releases": ranges(known.releases, data.order)} for known in data.known]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _expand(text: str, order: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for part in text.split(", "):
        first, _, last = part.partition(" - ")
        found.update(order[order.index(first) : order.index(last or first) + 1])
    return frozenset(found)


def ranges(releases: Iterable[str], order: Sequence[str]) -> str:
    """Return releases as ranges over the ones looked at: ``0.8.0 - 0.9.1, 0.11.0``."""
    held = frozenset(releases)
    out = []
    for there, group in itertools.groupby(order, key=lambda release: release in held):
        run = list(group)
        if there:
            out.append(run[0] if len(run) == 1 else f"{run[0]} - {run[-1]}")
    return ", ".join(out)


def add_release(data: Data, release: str, held: Iterable[Known]) -> Data:
    """Return the data with ``release`` looked at and the texts ``held`` in it; nothing is taken away."""
    order = sorted({*data.order, release}, key=version_key)
    texts = {id(known) for known in held}
    return Data(
        order,
        [replace(k, releases=k.releases | {release}) if id(k) in texts else k for k in data.known],
    )


# --------------------------------------------------------------------------------------------
# Known texts in a release

# Figures of a template stand in a rendering as one of these, so that a match tells which is which.
_MARKS = range(0xE000, 0xF8FF)
# Wordings are matched blind to blanks; here a blank more or less is another text, so they are shown.
_SHOWN = str.maketrans({" ": "␣", "\n": "␤", "\t": "␉"})
_ANY = Reader("any", r"(?s:.*?)", str, ("x",))
# Where the code has the word itself, it may be a few: "Triton MLA" for the name of a backend.
_WORD = Reader("word", r"(?:[^␣␤␉]+?|[\w./-]+(?:␣[\w./-]+){0,2}?)", str, ("x",))
_MARK_OR_NUMBER = Reader("number", r"(?:[\ue000-\uf8ff]|-?[\d.,]+)", str, ("x",))
_WORDY = re.compile(r"name|words|version|identifier|path|settings|url|architecture|device|specs|address|exit codes")


def rendered(template: Template) -> tuple[str, list[Figure]]:
    """Return a template without choices with a mark for each figure, and the figures."""
    out: list[str] = []
    found: list[Figure] = []
    for node in template:
        if isinstance(node, Literal):
            out.append(node.text)
        elif isinstance(node, Figure):
            out.append(chr(_MARKS[len(found) % len(_MARKS)]))
            found.append(node)
    return "".join(out).strip().translate(_SHOWN), found


class Wanted:
    """A known text as a pattern that finds it among the texts of a release."""

    def __init__(self, known: Known) -> None:
        self.known = known
        slots: Mapping[str, str | list[str]] = known.row.get("slots", {})
        self.readers = {slot: _reader(kind) for slot, kind in slots.items()}
        text = known.text.strip().translate(_SHOWN)
        self.loose = self._compile(text)
        self.whole = self._compile(re.sub(r"(?<=⟨)\||\|(?=⟩)|[⟦⟧]", "", text))

    def _compile(self, text: str) -> Compiled:
        return compile_wording(text, {name: self.readers.get(name, _ANY) for name in re.findall(r"\{(\w+)\}", text)})

    def closeness(self, loose: bool) -> tuple[int, int]:
        """Return how much of the text is fixed: words where another has a slot, and, ``loose``, parts always there.

        A choice of which a bare slot is one option is no closer than the slot itself.
        """
        words = len(re.sub(r"⟨[^⟩]*\|\{\w+\}⟩|\{\w+\}", "", self.whole.text))
        return words, -len(re.findall(r"⟦|⟨\||\|⟩", self.loose.text)) if loose else 0

    def match(self, text: str, loose: bool) -> dict[str, int] | None:
        """Return which figure of a rendered template each slot is, None when the text is another.

        ``loose``: optional parts of the known text may be absent.
        """
        hit = (self.loose if loose else self.whole).pattern.fullmatch(text)
        if hit is None:
            return None
        values = hit.groupdict().items()
        return {name: ord(v) - _MARKS[0] for name, v in values if v and len(v) == 1 and ord(v) in _MARKS}


def _reader(kind: str | list[str]) -> Reader:
    if isinstance(kind, list) or kind.startswith(("words", "settings", "specs")):
        return _ANY
    return _WORD if _WORDY.search(kind) else _MARK_OR_NUMBER


Slots = dict[str, Figure]


@dataclass(frozen=True, slots=True)
class Match:
    """A known text found in a release, and which figure each of its slots is."""

    known: Known
    found: Found
    slots: Slots


def find_known(wanted: Sequence[Wanted], release: Sequence[Found]) -> list[Match]:
    """Return the known texts that the texts of a release are, several per text when it has variants."""
    return [match for found in release for match in _matches(wanted, found)]


def _matches(wanted: Sequence[Wanted], found: Found) -> list[Match]:
    """Return the known texts that one text of a release is, those that fit it best.

    All that the text prints must be in the known one, which may have parts of its own that can be absent.
    """
    whole = variants(found.template, whole=True)
    best = _best(wanted, whole, loose=False) or _best(wanted, whole, loose=True)
    if len(best) > 1:  # alike but for what stands where an optional part is absent
        best = _best([want for want, _ in best], variants(found.template, whole=False), loose=True) or best
    return [Match(want.known, found, slots) for want, slots in best]


def _best(wanted: Sequence[Wanted], templates: Sequence[Template], loose: bool) -> list[tuple[Wanted, Slots]]:
    """Return the known texts that are most of ``templates``; of these the closest, and which figure each slot is."""
    covered: dict[int, set[int]] = defaultdict(set)
    slots: dict[int, Slots] = defaultdict(dict)
    for index, template in enumerate(templates):
        text, shown = rendered(template)
        for at, want in enumerate(wanted):
            hit = want.match(text, loose) if (want.loose if loose else want.whole).anchor in text else None
            if hit is not None:
                covered[at].add(index)
                slots[at] |= {name: shown[mark] for name, mark in hit.items()}

    def closer(one: int, two: int) -> bool:
        if covered[one] != covered[two]:
            return covered[one] > covered[two]
        return wanted[one].closeness(loose) > wanted[two].closeness(loose)

    return [(wanted[at], slots[at]) for at in covered if not any(closer(other, at) for other in covered)]


# --------------------------------------------------------------------------------------------
# What a figure is

_AFTER = (
    (r"GiB|GIB", "gib"),
    (r"GB", "gb"),
    (r"MiB", "mib"),
    (r"MB", "mib"),
    (r"bytes\b", "bytes"),
    (r"tokens?/s", "tokens/s"),
    (r"(?:\w+ )?tokens?\b", "tokens"),
    (r"%", "%"),
    (r"ms\b|milliseconds", "ms"),
    (r"s\b|secs?\b|seconds?\b", "s"),
    (r"min\b|minutes?\b", "min"),
    (r"(?:\w+ )?blocks?\b", "blocks"),
    (r"req(?:uest)?s?\b", "requests"),
    (r"x\b", "x"),
)
_BEFORE = ((r"\bPID\W*$|\bpid\W*$", "process id"), (r"blocks\W*$", "blocks"), (r"https?://\S*$", "url"))
_COMPUTED = (
    (r"/ \(?(?:\w+\.)*(?:GiB|1024 ?\*\* ?3|\(?1 << 30|2 ?\*\* ?30)", "gib"),
    (r"/ \(?(?:\w+\.)*(?:MiB|1024 ?\*\* ?2|\(?1 << 20|2 ?\*\* ?20)", "mib"),
    (r"/ \(?(?:1000000000(?:\.0)?|10 ?\*\* ?9)\b", "gb"),
    (r"\* 100(?:\.0)?$", "%"),
)
_NAMED = (
    (r"bytes(?:$|_)", "bytes"),
    (r"gib$|_gb$", "gib"),
    (r"max_model_len|seq_len|tokens$|_len$|length$", "tokens"),
    (r"blocks$", "blocks"),
    (r"utilization|fraction|ratio|_util$", "fraction"),
    (r"pid$", "process id"),
    (r"version", "version"),
    (r"url|endpoint", "url"),
    (r"path$|dir$|file(?:name)?$|^model$", "path"),
    (r"exit_?code$", "integer"),
    (r"^num_|_num$|count$|size$|rank$|_(?:seqs|reqs|heads|gpus|slots|items|node)$|limit$|^n_|capability", "count"),
    (r"time(?:out)?$|_s$|elapsed|seconds|duration", "s"),
    (r"architectures$", "architectures"),
    (r"architecture$", "architecture"),
    (r"vllm_config", "settings pairs"),
    (r"name$|dtype$|backend$|method$|mode$|type$|key$|platform$|quantization$|policy$|cls$|class$|_id$", "name"),
)
_WHOLE = frozenset(("count", "tokens", "blocks", "requests", "bytes", "process id"))


def kind_of(figure: Figure, before: str, after: str) -> str:
    """Return a guess of a figure's kind, from its format, its name and the words next to it."""
    if figure.how == "r2":
        return "gib r2"
    unit = _unit(figure, before, after)
    if figure.how == "repr":  # also f"{x=}", where a number has no quotes
        return unit if unit in _WHOLE | {"fraction"} else "name repr"
    if re.fullmatch(r"\.\d+f", figure.how):
        return f"{'number' if unit in _WHOLE | {'words', 'name'} else unit} {figure.how}"
    if unit in ("gib", "mib", "gb"):
        return f"{unit} raw"
    if figure.how in ("d", ",") and unit in ("words", "name"):
        unit = "count"
    if figure.how == "d" and unit in ("s", "%"):
        return f"{unit} d"
    if re.fullmatch(r"0\dd", figure.how):
        return f"index {figure.how}"
    return f"{unit} ," if figure.how == "," and unit in _WHOLE else unit


def _unit(figure: Figure, before: str, after: str) -> str:
    computed = _first(_COMPUTED, figure.source)
    beside = next((unit for pattern, unit in _AFTER if re.match(pattern, after.lstrip(" )"))), None)
    if beside in (None, "gb", "bytes") and computed:  # "GB" is printed of GiB as well
        return computed
    if re.match(r"s\b", after) and not figure.how and _first(_NAMED, figure.name) != "s":  # the plural: {device}s
        beside = None
    return beside or _first(_BEFORE, before) or _first(_NAMED, figure.name) or "words"


def _first(table: Iterable[tuple[str, str]], text: str) -> str | None:
    return next((unit for pattern, unit in table if re.search(pattern, text)), None)


def slots_of(template: Template) -> dict[str, str]:
    """Return a guessed kind for each figure of a template, by its name."""
    out: dict[str, str] = {}

    def spread(nodes: Template, before: str, behind: str) -> None:
        for index, node in enumerate(nodes):
            after = words_of(nodes[index + 1 :]) or behind
            if isinstance(node, Figure):
                out.setdefault(node.name, kind_of(node, before, after))
            elif isinstance(node, Either):
                for option in node.options:
                    spread(option, before, after)
            before = words_of((node,)) or before

    spread(template, "", "")
    return out


def distinct(template: Template) -> Template:
    """Return the template with another name for each figure that is another expression."""
    owners: dict[str, object] = {}

    def named(figure: Figure) -> Figure:
        own = (figure.source, figure.how) if figure.source else object()
        names = itertools.chain([figure.name], (f"{figure.name}_{n}" for n in itertools.count(2)))
        return replace(figure, name=next(name for name in names if owners.setdefault(name, own) == own))

    def spread(nodes: Template) -> Template:
        return tuple(
            named(node)
            if isinstance(node, Figure)
            else Either(tuple(map(spread, node.options)))
            if isinstance(node, Either)
            else node
            for node in nodes
        )

    return spread(template)


# --------------------------------------------------------------------------------------------
# What changed


@dataclass(frozen=True, slots=True)
class Gone:
    """A known text that the release does not hold, and the text of it that is most like it."""

    known: Known
    nearest: Found | None


@dataclass(frozen=True, slots=True)
class New:
    """A text that is not known: the places that print it, why it may matter, the known text it is like."""

    places: tuple[Found, ...]
    why: str
    like: Known | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What a release holds and lacks of the known texts, and what is new in it."""

    release: str
    before: str
    held: tuple[Known, ...]
    gone: tuple[Gone, ...]
    printed: tuple[str, ...]
    new: tuple[New, ...]


_MATTERS = re.compile(
    r"""memory|\boom\b|\b[GM]i?B\b|kv[ _-]?cache|\bgpus?\b|cuda.(?:graph|err|out|init|driver)|budget
    |graph.captur|captur\w+.{0,20}graph|cudagraph|utili[sz]ation|\bshm\b|/dev/shm|\bnuma\b|\bswap|offload
    |pinned|page.?cache|preempt|\bRAM\b|cgroup|ulimit|engine.?core|engine.{0,40}(?:dead|died|fail|start)
    |worker.{0,40}(?:dead|died|fail|exit|start)|\bdied\b|\bkill|shut.?down|terminat|exit.?code|start.?up
    |initiali[sz](?!er)|timed?.?out|deadlock|hang\b|crash|fatal|\bsignal\b|platform|sleep.mode|compil
    |warm.?up|profil|thread.{0,10}bind|max_model_len|max_num_seqs|max_num_batched_tokens|context.length
    |nccl|all.?reduce|out.of""",
    re.I | re.X,
)
_REFUSES = re.compile(
    r"not support|unsupported|must|cannot|can't|invalid|requires?\b|incompatible|too (?:small|large|long|many)"
)
_SETTINGS_FILE = re.compile(r"^(?:config|platforms)(?:/|\.py)|arg_utils\.py$|/quantization/__init__")
# Programs of their own, which no server runs, and copies of other packages.
_APART = ("benchmarks/", "third_party/", "vllm_flash_attn/", "collect_env.py")
_LEAST_LIKE = 0.6


def compare(data: Data, release: str, found: Sequence[Found], older: Sequence[Found] = ()) -> Changes:
    """Return what is still there, gone and new in ``release``; ``older`` is what a release before held."""
    before = data.before(release)
    matches = find_known([Wanted(known) for known in data.known], found)
    held = {id(match.known) for match in matches}
    known_here = {id(match.found) for match in matches}
    places = Places([one for one in found if id(one) not in known_here])
    gone = [Gone(known, places.nearest(known.text)) for known in data.of(before) if id(known) not in held]
    return Changes(
        release,
        before,
        tuple(known for known in data.known if id(known) in held),
        tuple(gone),
        tuple(_printed_otherwise(data, before, matches)),
        tuple(_new(data, found, matches, older)),
    )


def shape(template: Template) -> str:
    """Return what tells one text from another: its words and where its figures stand, not their names."""
    return re.sub(r"\{[^{}]*\}", "{}", notation(template)).strip()


def _bag(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]{2,}", re.sub(r"\{\w+\}", " ", text).lower()))


def _likeness(one: frozenset[str], two: frozenset[str]) -> float:
    return len(one & two) / (len(one | two) or 1)


class Places:
    """The texts of a release, to look for ones that are like another."""

    def __init__(self, found: Sequence[Found]) -> None:
        self.bags = [(_bag(words_of(one.template)), one) for one in found]

    def nearest(self, text: str) -> Found | None:
        """Return the text most like ``text``; None when nothing is like it."""
        bag = _bag(text)
        best = sorted(self.bags, key=lambda pair: -_likeness(bag, pair[0]))[:8]
        ratios = [(difflib.SequenceMatcher(None, text, notation(one.template)).ratio(), one) for _, one in best]
        ratio, one = max(ratios, key=lambda pair: pair[0], default=(0.0, None))
        return one if one and max(ratio, _likeness(bag, _bag(words_of(one.template)))) >= _LEAST_LIKE else None


def _printed_otherwise(data: Data, before: str, matches: Sequence[Match]) -> Iterator[str]:
    """Yield a line for each known text whose level, or the format of a figure, is not as the data says."""
    by_text: dict[int, list[Match]] = defaultdict(list)
    for match in matches:
        by_text[id(match.known)].append(match)
    for same in by_text.values():
        row, place = same[0].known.row, f"{same[0].found.file}:{same[0].found.line}"
        printed_as = {how for match in same for how in match.found.printed_as}
        if printed_as.isdisjoint([*" OR ".join(row["as"]).split(" OR "), _OBJECT]):
            yield f"{place}: as {' / '.join(sorted(printed_as))}, data: {' / '.join(row['as'])}: {row['text']!r}"
        for slot, kind in row.get("slots", {}).items():
            hows = {match.slots[slot].how for match in same if slot in match.slots}
            said = _how_at(kind, before, data.order) if isinstance(kind, str) else ""
            if hows and said and said not in hows and all(_STATED.fullmatch(how) for how in hows):
                yield f"{place}: {{{slot}}} printed {' / '.join(sorted(hows))}, data: {said}: {row['text']!r}"


_STATED = re.compile(r"\.\d+f|r\d|,")


def _how_at(kind: str, release: str, order: Sequence[str]) -> str:
    """Return how a figure of this kind is printed in ``release``: ``.2f``, ``r2``, ``,`` or nothing."""
    for part in kind.split("; "):
        printed, _, last = part.partition(" to ")
        if not last or (last in order and order.index(release) <= order.index(last)):
            how = printed.rpartition(" ")[2]
            return how if _STATED.fullmatch(how) else ""
    return ""


def _new(data: Data, found: Sequence[Found], matches: Sequence[Match], older: Sequence[Found]) -> list[New]:
    known_here = {shape(match.found.template) for match in matches}
    seen = known_here | {shape(one.template) for one in older}
    files = {match.found.file for match in matches}
    bags = [(_bag(known.text), known) for known in data.known]
    places: dict[str, list[Found]] = defaultdict(list)
    for one in found:
        if shape(one.template) not in seen and not one.file.startswith(_APART):
            places[shape(one.template)].append(one)
    new = []
    for same in places.values():
        bag = _bag(words_of(same[0].template))
        likeness, like = max(((_likeness(bag, other), known) for other, known in bags), key=lambda pair: pair[0])
        near = like if likeness >= _LEAST_LIKE and len(bag) > 3 else None
        why = _why(same[0], near, files)
        if why:
            new.append(New(tuple(same), why, near))
    return sorted(new, key=lambda one: (_ORDER.index(one.why), one.places[0].file, one.places[0].line))


_ORDER = (
    "like a known text",
    "in a file with known texts, and about memory, start or end",
    "in a file with known texts",
    "about memory, start or end",
    "refuses a setting",
)


def _why(found: Found, like: Known | None, files: set[str]) -> str:
    words = words_of(found.template)
    if like is not None:
        return _ORDER[0]
    matters = bool(_MATTERS.search(words))
    if found.file in files:
        return _ORDER[1] if matters else _ORDER[2]
    if matters:
        return _ORDER[3]
    return _ORDER[4] if _SETTINGS_FILE.search(found.file) and _REFUSES.search(words) else ""


# --------------------------------------------------------------------------------------------
# The page that is printed


def pasteable(new: New, release: str) -> str:
    """Return a line for the data that describes a new text; ``code`` is that of the text it is like."""
    template = distinct(new.places[0].template)
    row: dict[str, Any] = {
        "code": new.like.row["code"] if new.like else "?",
        "text": notation(template),
        "releases": release,
        "as": list(dict.fromkeys(how for place in new.places for how in place.printed_as)),
        "file": new.places[0].file,
    }
    slots = slots_of(template)
    return json.dumps(row | ({"slots": slots} if slots else {}), ensure_ascii=False)


def report(changes: Changes, broken: Mapping[str, str], most: int) -> Iterator[str]:
    """Yield the lines of the report, with at most ``most`` new texts of each sort."""
    for name, error in broken.items():
        yield f"not readable, its texts count as gone: {name}: {error}"
    expected = len(changes.gone) + sum(changes.before in known.releases for known in changes.held)
    yield f"## {changes.release}: holds {len(changes.held)} known texts"
    back = [known for known in changes.held if known.releases.isdisjoint((changes.before, changes.release))]
    yield f"{changes.before} holds {expected}; {len(changes.gone)} of them are gone, {len(back)} older ones are back"
    yield from (f"back: {known.row['code']}: {known.text!r}" for known in back)
    yield from ("", f"## Gone since {changes.before}: {len(changes.gone)}")
    for gone in changes.gone:
        yield f"- {gone.known.row['code']}: {gone.known.text}"
        near = gone.nearest
        yield f"  now {near.file}:{near.line}: {notation(near.template)}" if near else "  nothing like it"
    yield from ("", f"## Printed otherwise than the data says: {len(changes.printed)}")
    yield from changes.printed
    yield from _new_lines(changes, most)


def _new_lines(changes: Changes, most: int) -> Iterator[str]:
    sorts = Counter(new.why for new in changes.new)
    for why in _ORDER:
        yield from ("", f"## New, {why}: {sorts[why]}" + (f", {most} shown" if sorts[why] > most else ""))
        for new in [new for new in changes.new if new.why == why][:most]:
            place = new.places[0]
            yield f"# {place.file}:{place.line}" + (f" like {new.like.text!r}" if new.like else "")
            yield pasteable(new, changes.release)


# --------------------------------------------------------------------------------------------
# The command


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report, write when asked to; return 0, or 1 when a file could not be read."""
    options = _options().parse_args(arguments)
    data = load(options.data)
    version_key(options.release)
    _check_release(options.wheel, options.release)
    release = read_release(options.wheel)
    older = read_release(options.since).found if options.since else []
    changes = compare(data, options.release, release.found, older)
    for line in report(changes, release.broken, options.most):
        print(line)
    lost = sorted({gone.known.row["file"] for gone in changes.gone} & set(release.broken))
    if options.write and lost:
        print(f"\nnot written: known texts may be in {', '.join(lost)}; run with a newer Python", file=sys.stderr)
    elif options.write:
        options.data.write_text(dump(add_release(data, options.release, changes.held)), "utf-8")
    return 1 if release.broken else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare the texts of a vLLM release with the ones that are known.")
    parser.add_argument("wheel", type=Path, help="the wheel, or a folder into which it was unpacked")
    parser.add_argument("--release", required=True, help="its version, such as 0.34.0")
    parser.add_argument("--since", type=Path, help="the wheel of the release before: leave out what it held")
    parser.add_argument("--write", action="store_true", help="add the release to the data")
    parser.add_argument("--most", type=int, default=40, help="how many new texts of each sort to show (40)")
    parser.add_argument("--data", type=Path, default=DATA, help=argparse.SUPPRESS)
    return parser


def _check_release(path: Path, release: str) -> None:
    """End the program when the wheel's own metadata names another release."""
    for version in Wheel(path).versions():
        if not re.match(rf"{re.escape(release)}(?!\d|\.\d)", version):
            raise SystemExit(f"{path} is release {version}, not {release}")


if __name__ == "__main__":
    sys.exit(main())
