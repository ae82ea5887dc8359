"""The Linux kernel's out-of-memory reports, 2.6 to 6.12.

``kB`` is KiB; a process name is cut to 15 characters; pids are the host's. Forms read from
kernel sources and met in genuine records of 6.1.176 and 6.12.111.
"""

from __future__ import annotations

from vllm_diag.event_types import CgroupUse, OomKill, OomSummary, OomTask
from vllm_diag.messages import Message
from vllm_diag.quantities import KIB, Amount, Reader, count, integer, kib, words

_scope = Reader(
    "scope",
    r"Memorycgroupoutofmemory|OutofMemory|Outofmemory(?:\(oom_kill_allocating_task\))?",
    lambda text: "cgroup" if text.startswith("Memory") else "machine",
    ("Out of memory", "Memory cgroup out of memory"),
)
_comm = Reader("comm", r"[^()]{1,64}?(?:\([^()]{0,32}\))?", str, ("VLLM::EngineCor", "python3"))
_path = Reader("path", r"/[^\s,]{0,400}?", str, ("/system.slice/vllm.service",))
# People who post a kernel line sometimes regroup its digits: 153,700,88kB.
_kib = Reader("kib", r"\d[\d,]{0,20}", kib.read, ("31204880",))

# Pages of 4 KiB; arm64 and ppc64 kernels may have 64 KiB, which the table does not tell.
_pages = Reader("pages", r"\d{1,15}", lambda text: Amount(int(text) * 4 * KIB), ("38098",))

MESSAGES = (
    Message(
        code="oom-kill",
        event=OomKill,
        emitter="Linux kernel",
        seen="2.6 - 6.12",
        fatal=True,
        reads={
            "scope": _scope,
            "pid": count,
            "comm": _comm,
            "uid": count,
            "total_vm": _kib,
            "anon_rss": _kib,
            "file_rss": _kib,
            "shmem_rss": _kib,
            "pgtables": _kib,
            "score_adj": integer,
        },
        wordings=(
            "⟦{scope}: ⟧Killed process {pid}⟦,⟧ ({comm})⟦,⟧⟦ UID⟨:| ⟩{uid},⟧¦⟦ total-vm:{total_vm}kB⟧⟦,⟧"
            "⟦ anon-rss:{anon_rss}kB⟧⟦,⟧⟦ file-rss:{file_rss}kB⟧⟦,⟧⟦ shmem-rss:{shmem_rss}kB⟧⟦,⟧"
            "⟦ UID:{uid}⟧⟦ pgtables:{pgtables}kB⟧⟦,⟧⟦ oom_score_adj:{score_adj}⟧",
        ),
        samples=(
            "Out of memory: Killed process 14822 (VLLM::EngineCor) total-vm:64213524kB, anon-rss:31204880kB,"
            " file-rss:4kB, shmem-rss:33416kB, UID:0 pgtables:344kB oom_score_adj:0",
            "Memory cgroup out of memory: Killed process 93 (VLLM::EngineCor) total-vm:74752kB, anon-rss:73332kB,"
            " file-rss:4kB, shmem-rss:648kB, UID:0 pgtables:180kB oom_score_adj:0",
            "Killed process 4711 (python3) total-vm:64213524kB, anon-rss:31204880kB, file-rss:0kB",
            "Killed process 4711 (python3), UID 0, total-vm:64213524kB, anon-rss:31204880kB, file-rss:0kB",
        ),
        means="The kernel killed a process for want of host memory: a full proof.",
    ),
    Message(
        code="oom-candidate",
        emitter="Linux kernel",
        seen="3.x - 5.0",
        reads={"scope": _scope, "pid": count, "comm": _comm, "score": count},
        wordings=("{scope}: Kill process {pid} ({comm}) score {score} or sacrifice child",),
        samples=("Out of memory: Kill process 4711 (python3) score 917 or sacrifice child",),
        means="The kernel names a candidate; the process really killed stands on the next line.",
    ),
    Message(
        code="oom-kill-summary",
        event=OomSummary,
        emitter="Linux kernel",
        seen="5.0 - 6.12",
        reads={
            "constraint": Reader("constraint", r"CONSTRAINT_[A-Z_]{3,20}", str, ("CONSTRAINT_NONE",)),
            "nodemask": words,
            "cpuset": words,
            "mems": words,
            "memcg": _path,
            "victim_memcg": _path,
            "comm": Reader("comm", r"[^,]{1,64}?", str, ("VLLM::EngineCor",)),
            "pid": count,
            "uid": count,
        },
        wordings=(
            "oom-kill:constraint={constraint},nodemask={nodemask},cpuset={cpuset},mems_allowed={mems}⟦,global_oom⟧"
            "⟦,oom_memcg={memcg}⟧⟦,task_memcg={victim_memcg}⟧,task={comm},pid={pid},uid={uid}",
        ),
        samples=(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
            "oom_memcg=/system.slice/vllm.service,task_memcg=/system.slice/vllm.service,task=VLLM::EngineCor,pid=93,"
            "uid=0",
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,3,global_oom,task_memcg=/,"
            "task=VLLM::Worker_TP,pid=94,uid=0",
        ),
        means="Which limit was full and which process dies for it.",
    ),
    Message(
        code="oom-invoked",
        emitter="Linux kernel",
        seen="2.6 - 6.12",
        reads={"comm": words, "gfp_mask": words, "order": integer, "score_adj": integer},
        wordings=("{comm} invoked oom-killer: gfp_mask={gfp_mask}, order={order}¦, oom_score_adj={score_adj}",),
        samples=(
            "VLLM::EngineCor invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0,"
            " oom_score_adj=0",
        ),
        means="A thread asked for a page that was not there; it need not be the victim.",
    ),
    Message(
        code="oom-cgroup-use",
        event=CgroupUse,
        emitter="Linux kernel",
        reads={"usage": _kib, "limit": _kib, "failcnt": count},
        wordings=("memory: usage {usage}kB, limit {limit}kB¦, failcnt {failcnt}",),
        samples=("memory: usage 102400kB, limit 102400kB, failcnt 35",),
        means="Memory of the cgroup whose limit was hit.",
    ),
    Message(
        code="oom-group-kill",
        emitter="Linux kernel",
        seen="4.19 - 6.12",
        reads={"cgroup": _path},
        wordings=("Tasks in {cgroup} are going to be killed due to memory.oom.group set",),
        samples=("Tasks in /system.slice/vllm.service are going to be killed due to memory.oom.group set",),
        means="The whole cgroup is killed.",
    ),
    Message(
        code="oom-reaped",
        emitter="Linux kernel",
        seen="4.6 - 6.12",
        reads={"pid": count, "comm": _comm, "anon_rss": _kib},
        wordings=("oom_reaper: reaped process {pid} ({comm}), now anon-rss:{anon_rss}kB",),
        samples=("oom_reaper: reaped process 94 (VLLM::Worker_TP), now anon-rss:0kB, file-rss:0kB, shmem-rss:33416kB",),
        means="Memory was taken back from a killed process.",
    ),
    Message(
        code="oom-task",
        event=OomTask,
        emitter="Linux kernel",
        seen="3.x - 6.12",
        spaced=True,
        reads={
            "pid": Reader("pid", r"\s{0,12}\d{1,10}\s{0,4}", int, ("94",)),
            "uid": count,
            "tgid": count,
            "total_vm": _pages,
            "rss": _pages,
            "rss_anon": _pages,
            "rss_file": _pages,
            "rss_shmem": _pages,
            "pgtables": count,
            "pmds": count,
            "swapped": _pages,
            "score_adj": integer,
            "name": Reader("name", r"\S.{0,30}", str, ("VLLM::Worker_TP",)),
        },
        wordings=(
            # Since 6.8 rss is told by kind as well; some 4.x count page-table directories.
            "[{pid}] {uid} {tgid} {total_vm} {rss}⟦ {rss_anon} {rss_file} {rss_shmem}⟧ {pgtables}⟦ {pmds}⟧ {swapped}"
            " {score_adj} {name}",
        ),
        samples=(
            "[     94]     0    94    39189    38098   352256        0             0 VLLM::Worker_TP",
            "[     94]     0    94    39189    38098    29700       44     8354   352256        0             0 VLLM::Worker_TP",
        ),
        means="One process at an out-of-memory kill: who was large. Shared pages count in each.",
    ),
    Message(
        code="oom-task-table",
        emitter="Linux kernel",
        wordings=("Tasks state (memory values in pages):", "[ pid ] uid tgid total_vm rss"),
        samples=(
            "Tasks state (memory values in pages):",
            "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        ),
        means="The list of processes at an out-of-memory kill begins; sizes are in pages.",
    ),
)
