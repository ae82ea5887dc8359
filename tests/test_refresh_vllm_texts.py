"""The tool that compares the texts of a vLLM release with the known ones, on small packages of our own."""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "refresh_vllm_texts.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh_vllm_texts", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


tool = _load()


def _package(folder: Path, **files: str) -> Path:
    """Return ``folder`` with a package vllm in it; ``a__b`` is the file ``a/b.py``."""
    for name, source in {"__init__": "", **files}.items():
        path = folder / "vllm" / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
    return folder


def _texts(folder: Path, source: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the texts of one module, as (notation, as)."""
    release = tool.read_release(_package(folder, module=source))
    assert release.broken == {}
    return [(tool.notation(one.template), one.printed_as) for one in release.found]


_FORMS = {
    "constant": ('logger.info("Using V2 Model Runner")', "Using V2 Model Runner", "INFO"),
    "implicit concatenation": ('logger.warning("one "\n    "two")', "one two", "WARNING"),
    "added": ('logger.error("one " + name + " two")', "one {name} two", "ERROR"),
    "f-string": ('logger.debug(f"a {x.free_memory:.2f} of {n:,}")', "a {free_memory} of {n}", "DEBUG"),
    "f-string with =": ('logger.info(f"node {rank=}")', "node rank={rank}", "INFO"),
    "f-string with a constant in it": ('logger.info(f"port {8000} is taken")', "port 8000 is taken", "INFO"),
    "braces": ('logger.info(f"set {{{x}}} here")', "set {{{x}}} here", "INFO"),
    "percent with arguments": ('logger.info("# GPU blocks: %d, 5%%", blocks)', "# GPU blocks: {blocks}, 5%", "INFO"),
    "percent without arguments": ('logger.exception("it hit: %s")', "it hit: %s", "ERROR"),
    "percent operator": (
        'raise ValueError("at %s of %.2f GiB" % (where, size))',
        "at {where} of {size} GiB",
        "ValueError",
    ),
    "percent operator with names": ('raise ValueError("at %(a)s" % {"a": there})', "at {there}", "ValueError"),
    "percent with starred arguments": ('logger.info("Running: %d reqs", *args)', "Running: {running} reqs", "INFO"),
    "format": ('raise ValueError("at {} of {size:.2f}".format(where, size=n))', "at {where} of {n}", "ValueError"),
    "join of a list": ('logger.info(", ".join(["one", f"two {x}"]))', "one, two {x}", "INFO"),
    "join of what is not known": ('logger.info("names: " + ", ".join(names))', "names: {names}", "INFO"),
    "template with colours": ('logger.info(Template("${w}hello${r} world").substitute(colors))', "hello world", "INFO"),
    "dedent": ('logger.info(dedent("hello\\n"))', "hello\n", "INFO"),
    "conditional expression": ('logger.info("mode=%s", "lazy" if x else "eager")', "mode=⟨lazy|eager⟩", "INFO"),
    "optional part": ('logger.info("died" + (f" with {code}" if code else ""))', "died⟦ with {code}⟧", "INFO"),
    "or": ("logger.info(f\"file system {fs or 'unknown'}\")", "file system ⟨{fs}|unknown⟩", "INFO"),
    "once": ('logger.info_once("only now")', "only now", "INFO"),
    "print once": ('print_warning_once("only now")', "only now", "WARNING"),
    "logger of the object": ('self.logger.critical("the end")', "the end", "CRITICAL"),
    "level as an argument": ('logger.log(logging.WARNING, "at %s", here)', "at {here}", "WARNING"),
    "warnings": ('warnings.warn("going away", stacklevel=2)', "going away", "WARNINGS.WARN"),
    "assert": ('assert free > 0, f"Error in profiling {free}"', "Error in profiling {free}", "AssertionError"),
    "raise from": ('raise TimeoutError("too slow") from None', "too slow", "TimeoutError"),
    "raise of another name": ('raise EngineDead("it died")', "it died", "EngineDead"),
    "exception that is kept": ('failure = RuntimeError("it died")', "it died", "RuntimeError"),
    "progress bar": ('tqdm(files, desc="Loading shards")', "Loading shards", "PROGRESS"),
    "format_gib": ('logger.info("%s GiB left", format_gib(self.free))', "{free} GiB left", "INFO"),
}


@pytest.mark.parametrize(("source", "text", "printed_as"), _FORMS.values(), ids=_FORMS)
def test_a_form_of_text(tmp_path: Path, source: str, text: str, printed_as: str) -> None:
    """Each way to write a text down is read, and told apart by how it is printed."""
    assert _texts(tmp_path, source) == [(text, (printed_as,))]


_FLOWS = {
    "name assigned before": (
        """
        def check(size):
            text = f"{size} bytes"
            raise ValueError(f"too many: {text}")
        """,
        "too many: {size} bytes",
    ),
    "name of the module": ('ADVICE = "Try again."\ndef f(): raise ValueError(f"No. {ADVICE}")', "No. Try again."),
    "parameter that hides a name of the module": (
        'why = "Try again."\ndef f(why): raise ValueError(f"No. {why}")',
        "No. {why}",
    ),
    "part added under a condition": (
        """
        def f(x):
            text = "no memory"
            if x:
                text += f" on {x}"
            raise ValueError(text)
        """,
        "no memory⟦ on {x}⟧",
    ),
    "branches": (
        """
        def f(tpu):
            device = "GPU"
            if tpu:
                device = "TPU"
            raise ValueError(f"no {device} here")
        """,
        "no ⟨TPU|GPU⟩ here",
    ),
    "branch that ends": (
        """
        def f(x):
            text = "one"
            if x:
                text = "two"
                return
            raise ValueError(text)
        """,
        "one",
    ),
    "part added in a loop": (
        """
        def f(cores):
            text = "bound to:\\n"
            for core in cores:
                text += f"core {core}\\n"
            logger.info(text)
        """,
        "bound to:\n⟦core {core}\n⟧",
    ),
    "list with a part added under a condition": (
        """
        def log(self):
            parts = ["Running: %d reqs"]
            if self.waiting:
                parts.append("Waiting: %d reqs")
            parts.append("KV cache usage: %.1f%%")
            log_fn = logger.debug if self.idle else logger.info
            log_fn(", ".join(parts), *self.args)
        """,
        "Running: {running} reqs⟦, Waiting: {waiting} reqs⟧, KV cache usage: {kv_cache_usage}%",
    ),
    "text that a method returns": (
        """
        class A:
            def _prefix(self):
                return f"[{self.tag}] " if self.tag else ""
            def log(self):
                logger.info("%sdone", self._prefix())
        """,
        "⟦[{tag}] ⟧done",
    ),
    "text of a property of a base class": (
        """
        class A:
            @property
            def prefix(self):
                return "Engine %03d: " % self.index
        class B(A):
            def log(self):
                logger.info(self.prefix + "idle")
        """,
        "Engine {index}: idle",
    ),
    "message of an exception class": (
        """
        class EngineDeadError(Exception):
            TEXT = "EngineCore encountered an issue."
            def __init__(self):
                super().__init__(self.TEXT)
        """,
        "EngineCore encountered an issue.",
    ),
    "text of an object": (
        """
        class Snapshot:
            def __repr__(self):
                return f"free={format_gib(self.free)}GiB"
        """,
        "free={free}GiB",
    ),
    "after a try": (
        """
        def f():
            try:
                x = load()
            except ImportError as e:
                text = f"cannot load: {e}"
                logger.info(text)
        """,
        "cannot load: {e}",
    ),
}


@pytest.mark.parametrize(("source", "text"), _FLOWS.values(), ids=_FLOWS)
def test_a_text_that_is_built_up(tmp_path: Path, source: str, text: str) -> None:
    """A text is followed through names, branches, loops, lists, methods and classes."""
    assert [found for found, _ in _texts(tmp_path, source)] == [text]


def test_the_code_may_choose_the_level(tmp_path: Path) -> None:
    """A name for one of two methods of a logger gives both levels."""
    source = 'log = logger.debug if idle else logger.info\nlog("hello %s", name)'
    assert _texts(tmp_path, source) == [("hello {name}", ("DEBUG", "INFO"))]


def test_what_is_no_message_is_left_out(tmp_path: Path) -> None:
    """Docstrings, plain strings, and texts without a word of their own are not read."""
    source = '"""Engine died."""\nx = "no memory"\nlogger.info("%s: %s", a, b)\nlogger.info(value)\nmath.log(2)\n'
    assert _texts(tmp_path, source) == []


def test_file_and_line_are_kept(tmp_path: Path) -> None:
    """A text knows where it stands."""
    folder = _package(tmp_path, v1__worker='\n\nlogger.info(\n    "hello")\n')
    assert [(one.file, one.line) for one in tool.read_release(folder).found] == [("v1/worker.py", 3)]


def test_a_broken_file_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """A file that Python cannot parse is named; the texts of the others are there."""
    release = tool.read_release(_package(tmp_path, bad="def f(:\n", good='logger.info("hello")'))
    assert list(release.broken) == ["bad.py"]
    assert [tool.notation(one.template) for one in release.found] == ["hello"]


# --------------------------------------------------------------------------------------------
# Against data

_RELEASES = ["0.1.0", "0.2.0", "0.3.0"]
_ROWS = [
    {
        "code": "kv-blocks",
        "text": "# GPU blocks: {blocks}",
        "releases": "0.1.0 - 0.3.0",
        "as": ["INFO"],
        "file": "cache.py",
        "slots": {"blocks": "blocks"},
    },
    {
        "code": "weights",
        "text": "Model loading took {size} GiB and {seconds} seconds",
        "releases": "0.1.0, 0.3.0",
        "as": ["INFO"],
        "file": "cache.py",
        "slots": {"size": "gib .2f to 0.2.0; gib r2", "seconds": "s .2f"},
    },
    {
        "code": "no-memory",
        "text": "No available memory for the cache blocks.⟦ Try {flag}.⟧",
        "releases": "0.2.0 - 0.3.0",
        "as": ["ValueError"],
        "file": "cache.py",
        "slots": {"flag": "name"},
    },
    {
        "code": "old",
        "text": "Something that nobody prints any more",
        "releases": "0.1.0",
        "as": ["INFO"],
        "file": "old.py",
    },
]
_SAME = """
    logger.info("# GPU blocks: %d", num_gpu_blocks)
    logger.info("Model loading took %s GiB and %.2f seconds", format_gib(used), elapsed)
    def f(flag):
        text = "No available memory for the cache blocks."
        if flag:
            text += f" Try {flag}."
        raise ValueError(text)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a small file of data."""
    path = tmp_path / "data.jsonl"
    rows = [{"releases": _RELEASES}, *_ROWS]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def _changes(data: Path, folder: Path, source: str, older: str | None = None, release: str = "0.4.0"):
    found = tool.read_release(_package(folder / "new", cache=source)).found
    before = tool.read_release(_package(folder / "before", cache=older)).found if older else ()
    return tool.compare(tool.load(data), release, found, before)


def test_what_is_still_there(data: Path, tmp_path: Path) -> None:
    """Every known text of the release before is found in the same sources, and nothing is new."""
    changes = _changes(data, tmp_path, _SAME)
    assert [known.row["code"] for known in changes.held] == ["kv-blocks", "weights", "no-memory"]
    assert (changes.before, changes.gone, changes.printed, changes.new) == ("0.3.0", (), (), ())


def test_a_reworded_text_is_gone_and_shown_beside_what_replaced_it(data: Path, tmp_path: Path) -> None:
    """The nearest text of the release is given with what is gone, and offered with the same code."""
    source = _SAME.replace("Model loading took %s GiB and", "Model loading took %s GiB memory and")
    changes = _changes(data, tmp_path, source)
    [gone] = changes.gone
    assert gone.known.row["code"] == "weights"
    assert tool.notation(gone.nearest.template) == "Model loading took {used} GiB memory and {elapsed} seconds"
    [new] = changes.new
    assert json.loads(tool.pasteable(new, "0.4.0")) == {
        "code": "weights",
        "text": "Model loading took {used} GiB memory and {elapsed} seconds",
        "releases": "0.4.0",
        "as": ["INFO"],
        "file": "cache.py",
        "slots": {"used": "gib r2", "elapsed": "s .2f"},
    }


def test_a_blank_more_is_another_text(data: Path, tmp_path: Path) -> None:
    """Texts are compared blank by blank."""
    changes = _changes(data, tmp_path, _SAME.replace("# GPU blocks: ", "# GPU  blocks: "))
    assert [gone.known.row["code"] for gone in changes.gone] == ["kv-blocks"]


def test_a_text_with_one_more_part_is_another_text(data: Path, tmp_path: Path) -> None:
    """An optional part that is not in the data makes it gone: the message would not be read whole."""
    more = _SAME.replace("        raise", "        if more:\n            text += ' See the page.'\n        raise")
    assert [gone.known.row["code"] for gone in _changes(data, tmp_path, more).gone] == ["no-memory"]


def test_a_text_without_a_part_that_may_be_absent_is_the_text(data: Path, tmp_path: Path) -> None:
    """A message that lost an optional part is still read whole."""
    less = _SAME.replace('text += f" Try {flag}."', "pass")
    assert _changes(data, tmp_path, less).gone == ()


def test_a_part_of_a_longer_text_is_not_the_text(data: Path, tmp_path: Path) -> None:
    """A known text inside another one is not found."""
    source = _SAME.replace("# GPU blocks: %d", "# GPU blocks: %d, # CPU blocks: 0")
    assert [gone.known.row["code"] for gone in _changes(data, tmp_path, source).gone] == ["kv-blocks"]


def test_new_texts_by_why_they_matter(data: Path, tmp_path: Path) -> None:
    """What is new is sorted by why it may matter; what the older release held, and chatter, is left out."""
    shm = 'logger.warning("/dev/shm holds only %.2f GiB", free / GiB_bytes)\n'
    new = tmp_path / "new"
    _package(new, a='raise ValueError("old trouble with GPU memory")', b='logger.info("tokenizer loaded")', c=shm)
    _package(new, **{"config": 'raise ValueError("x must be > 0")', "cache": _SAME + '    logger.info("hello")'})
    older = _package(tmp_path / "older", away='raise ValueError("old trouble with GPU memory")')
    changes = tool.compare(tool.load(data), "0.4.0", tool.read_release(new).found, tool.read_release(older).found)
    assert [(one.why, tool.notation(one.places[0].template)) for one in changes.new] == [
        ("in a file with known texts", "hello"),
        ("about memory, start or end", "/dev/shm holds only {free} GiB"),
        ("refuses a setting", "x must be > 0"),
    ]


def test_a_figure_printed_another_way_is_reported(data: Path, tmp_path: Path) -> None:
    """A known text whose figure has another format, or that has another level, is named."""
    source = _SAME.replace("took %s GiB", "took %.2f GiB").replace("format_gib(used)", "used")
    source = source.replace('logger.info("# GPU', 'logger.debug("# GPU')
    size, level = sorted(_changes(data, tmp_path, source).printed, reverse=True)
    assert size.startswith("cache.py:3: {size} printed .2f, data: r2:")
    assert level.startswith("cache.py:2: as DEBUG, data: INFO:")


def test_a_wording_closer_than_one_with_a_slot_is_taken(data: Path, tmp_path: Path) -> None:
    """Where one known text has the very words, the one with a slot in their place is not meant."""
    row = _ROWS[0] | {"text": "# {device} blocks: {blocks}", "slots": {"device": "device type", "blocks": "blocks"}}
    data.write_text(data.read_text("utf-8") + json.dumps(row) + "\n", "utf-8")
    texts = [known.text for known in _changes(data, tmp_path, _SAME).held]
    assert "# GPU blocks: {blocks}" in texts
    assert "# {device} blocks: {blocks}" not in texts


def test_the_wording_with_the_same_parts_is_taken(data: Path, tmp_path: Path) -> None:
    """Of wordings that differ in what may be absent, the one with the parts of the release is meant."""
    always = _ROWS[2] | {"text": "No available memory for the cache blocks. Try {flag}."}
    data.write_text(data.read_text("utf-8") + json.dumps(always) + "\n", "utf-8")
    optional, source = _ROWS[2]["text"], _SAME
    for text in (optional, always["text"]):
        held = [known.text for known in _changes(data, tmp_path, source).held if known.row["code"] == "no-memory"]
        assert held == [text]
        source = "raise ValueError(f'No available memory for the cache blocks. Try {flag}.')"


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ('"%.2f GiB"', ["gib .2f"]),
        ('"%.4f GB", x / GiB_bytes', ["gib .4f"]),
        ('"%.2f GB", x / 1e9', ["gb .2f"]),
        ('f"has {free / MiB_bytes:.0f} left"', ["mib .0f"]),
        ('f"took {elapsed:.2f}s for {n} tokens"', ["s .2f", "tokens"]),
        ('f"holds {x:,} tokens, {y:.2f}x"', ["tokens ,", "x .2f"]),
        ('f"usage {x:.1f}%, {y:.1f} tokens/s"', ["% .1f", "tokens/s .1f"]),
        ('f"utilization ({gpu_memory_utilization})"', ["fraction"]),
        ('f"name {model_name!r} {world_size=}"', ["name repr", "count"]),
        ('"Engine %03d at (PID: %d)", i, p', ["index 03d", "process id"]),
        ('f"no {device_str}s after {ready_timeout_s}s"', ["words", "s"]),
        ('f"set {kv_cache_memory_bytes} because {reason}"', ["bytes", "words"]),
    ],
)
def test_kinds_are_guessed(tmp_path: Path, source: str, kinds: list[str]) -> None:
    """The kind of a figure is guessed from its format, its name and the words beside it."""
    if source.startswith('"') and "," not in source:
        source += ", x"
    [found] = tool.read_release(_package(tmp_path, module=f"logger.info({source.replace('%.', 'so %.', 1)})")).found
    assert list(tool.slots_of(tool.distinct(found.template)).values()) == kinds


# --------------------------------------------------------------------------------------------
# The command


def _run(data: Path, folder: Path, *more: str, release: str = "0.4.0") -> int:
    return tool.main([str(folder), "--release", release, "--data", str(data), *more])


def test_write_adds_the_release(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The release joins the list and the ranges of what it holds; nothing else of the file changes."""
    before = data.read_text("utf-8").splitlines()
    assert _run(data, _package(tmp_path / "w", cache=_SAME), "--write") == 0
    after = data.read_text("utf-8").splitlines()
    assert json.loads(after[0]) == {"releases": [*_RELEASES, "0.4.0"]}
    assert [json.loads(line)["releases"] for line in after[1:]] == [
        "0.1.0 - 0.4.0",
        "0.1.0, 0.3.0 - 0.4.0",
        "0.2.0 - 0.4.0",
        "0.1.0",
    ]
    assert after[4] == before[4]
    assert "0.4.0: holds 3 known texts" in capsys.readouterr().out


def test_the_report_says_what_is_gone_and_what_is_new(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page names what is gone, what it may have become, and gives the new as lines of the data."""
    source = _SAME.replace("Model loading took %s GiB and", "Model loading took %s GiB memory and")
    folder = _package(tmp_path / "w", cache=source.replace("# GPU blocks: %d", "hello %d"), other="x = (")
    assert _run(data, folder, "--most", "1") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("not readable, its texts count as gone: other.py: ")
    assert lines[1:3] == [
        "## 0.4.0: holds 1 known texts",
        "0.3.0 holds 3; 2 of them are gone, 0 older ones are back",
    ]
    gone = lines.index("## Gone since 0.3.0: 2")
    assert lines[gone + 1 : gone + 5] == [
        "- kv-blocks: # GPU blocks: {blocks}",
        "  nothing like it",
        "- weights: Model loading took {size} GiB and {seconds} seconds",
        "  now cache.py:3: Model loading took {used} GiB memory and {elapsed} seconds",
    ]
    new = [json.loads(line) for line in lines if line.startswith("{")]
    assert [row["code"] for row in new] == ["weights", "?"]


def test_write_again_changes_nothing(data: Path, tmp_path: Path) -> None:
    """A second run leaves the file as it is, byte for byte."""
    folder = _package(tmp_path / "w", cache=_SAME)
    _run(data, folder, "--write")
    once = data.read_bytes()
    _run(data, folder, "--write")
    assert data.read_bytes() == once


def test_a_release_in_between_is_put_in_its_place(data: Path, tmp_path: Path) -> None:
    """The range of a text that a release in between does not hold is split."""
    source = _SAME.replace("# GPU blocks: %d", "GPU blocks: %d")
    _run(data, _package(tmp_path / "w", cache=source), "--write", release="0.2.1")
    head, first, *_ = map(json.loads, data.read_text("utf-8").splitlines())
    assert head["releases"] == ["0.1.0", "0.2.0", "0.2.1", "0.3.0"]
    assert first["releases"] == "0.1.0 - 0.2.0, 0.3.0"


def test_without_write_nothing_is_written(data: Path, tmp_path: Path) -> None:
    """The report alone leaves the data alone."""
    before = data.read_bytes()
    _run(data, _package(tmp_path / "w", cache=_SAME))
    assert data.read_bytes() == before


def test_nothing_is_written_when_known_texts_may_be_in_a_broken_file(data: Path, tmp_path: Path) -> None:
    """Texts of a file that cannot be read would be written off; the exit status says that it was broken."""
    before = data.read_bytes()
    assert _run(data, _package(tmp_path / "w", cache="def f(:"), "--write") == 1
    assert data.read_bytes() == before


@pytest.mark.parametrize("release", ["0.4.0rc1", "main", "0.0.1"])
def test_a_release_that_is_none_is_refused(data: Path, tmp_path: Path, release: str) -> None:
    """Candidates, branches, and what is older than all that is known have no place in the list."""
    with pytest.raises(SystemExit):
        _run(data, _package(tmp_path / "w", cache=_SAME), release=release)


@pytest.mark.parametrize(("version", "fits"), [("0.4.0+cu129", True), ("0.4.0.post1", True), ("0.4.0.1", False)])
def test_the_wheel_must_be_of_that_release(data: Path, tmp_path: Path, version: str, fits: bool) -> None:
    """A wheel whose metadata names another release is refused."""
    folder = _package(tmp_path / "w", cache=_SAME)
    (folder / f"vllm-{version}.dist-info").mkdir()
    if fits:
        assert _run(data, folder) == 0
    else:
        with pytest.raises(SystemExit):
            _run(data, folder)


def test_a_packed_wheel_and_the_package_itself_will_do(tmp_path: Path) -> None:
    """The wheel as it was downloaded, unpacked, or the package alone give the same texts."""
    folder = _package(tmp_path / "w", cache=_SAME)
    wheel = tmp_path / "vllm-0.4.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in folder.rglob("*.py"):
            archive.write(path, path.relative_to(folder))
        archive.writestr("vllm-0.4.0.dist-info/METADATA", "")
    found = tool.read_release(folder).found
    assert len(found) == 3
    assert tool.read_release(wheel).found == tool.read_release(folder / "vllm").found == found
    assert tool.Wheel(wheel).versions() == {"0.4.0"}


def test_a_folder_without_the_package_is_refused(data: Path, tmp_path: Path) -> None:
    """A folder that holds no vLLM is no error of Python's."""
    with pytest.raises(SystemExit, match="no package vllm"):
        _run(data, tmp_path)


def _rows() -> Iterator[str]:
    yield from tool.DATA.read_text("utf-8").splitlines()


def test_the_data_of_the_package_is_as_the_tool_writes_it() -> None:
    """Writing without a change is no change: ranges, order and spelling are the tool's own."""
    assert tool.dump(tool.load(tool.DATA)) == tool.DATA.read_text("utf-8")


def test_every_known_text_can_be_looked_for() -> None:
    """Each wording of the data gives a pattern that fits its own rendering."""
    for known in tool.load(tool.DATA).known:
        assert tool.Wanted(known).loose.anchor, known.text
