"""Prove the remedies of vllm-diag on real servers.

For each release of vLLM's CPU build and each failure it

1. installs the release into a virtual environment of its own below ``--work`` and writes small models without weights;
2. starts ``vllm serve`` so that it fails, and lets ``vllm-diag explain --format json`` read the log;
3. applies the first ``as-is`` remedy literally: a flag is replaced where it is there and added where it is not, a
   variable is set in the environment; commands and acts are not carried out, and counted as skipped;
4. starts the server again: it is healthy when ``/health`` answers 200 and a short completion is answered;
5. for an advised ``--max-model-len``, also where it comes second, sends a request of the full length, and starts a
   server with one block more, which must not start, or never serve such a request.

The results go into ``docs/receipts.json``, row by row, so that a run may be stopped and another adds to it, and
``docs/receipts.md`` is made from them. For instance::

    python -m tools.prove_remedies 0.20.2 0.32.0 --work ../prove --failures kv-full,unknown-flag
    python -m tools.prove_remedies            # only make the page anew

What is already in the receipts is not run again without ``--again`` (``--again-bad``: only what was not as promised).
It takes about five minutes a release and length on two cores, two to six GB of disk a release, and a compiler where
the system's libstdc++ is older than the wheel's. One server runs at a time, on 127.0.0.1, and is ended by its own
process id.
"""
