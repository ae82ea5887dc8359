"""Every cause has a full page."""

from __future__ import annotations

from vllm_diag.causes import all_causes
from vllm_diag.pages import page

SECTIONS = {"arises": "How it comes about", "verify": "How to verify", "useless": "What does not help"}


def test_every_cause_tells_how_it_arises_how_to_verify_and_what_is_useless() -> None:
    """All three parts are there, end with a full stop, belong to one cause alone and stand on its page."""
    told: dict[str, str] = {}
    for code, cause in all_causes().items():
        shown = page(code) or ""
        for name, title in SECTIONS.items():
            text = getattr(cause, name)
            assert text.endswith("."), f"{code}: {name}"
            assert text not in told, f"{code} and {told.get(text)}: {name}"
            told[text] = code
            assert f"{title}:\n\n{text}" in shown, f"{code}: {title}"
