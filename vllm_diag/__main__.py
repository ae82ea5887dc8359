"""``python -m vllm_diag`` is the command ``vllm-diag``."""

from vllm_diag.cli import main

main()
