"""The extension module: the driver's client and the Rust half of a worker.

Nothing here is for users. Every call that can wait releases the GIL and polls signals every 100 ms.
"""

import builtins
from typing import Any, final

__version__: str
__protocol__: int
RUN_FORMAT: int
STACK_SIGNAL: int
AUTOMATIC_FIELDS: list[str]

@final
class Opaque:
    """Something that a worker has pickled, unopened."""

    @property
    def repr(self) -> str: ...
    @property
    def pickle(self) -> bytes: ...

@final
class Client:
    """A connection to a head: the driver's only way to talk to one."""

    @staticmethod
    def start_private(
        binary: str,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        resources: dict[str, float] | None = None,
    ) -> Client:
        """Starts a private head-and-agent that ends with this process."""
    @staticmethod
    def connect(socket: str) -> Client: ...
    @property
    def socket(self) -> str: ...
    @property
    def directory(self) -> str: ...
    @property
    def head_pid(self) -> int: ...
    @property
    def head_panic(self) -> str | None: ...
    def prepare(self, executable: str, path: list[str], modules: list[str], script: str | None = None) -> None:
        """Asks the node to have these modules imported before the first fork. Returns at once."""
    def put_blob(self, data: bytes) -> str:
        """Stores bytes under their hash, which is returned. What the head has already is not sent."""
    def get_blob(self, hash: str) -> bytes: ...
    def submit(self, spec: str, config: object, function: str, environment: dict[str, str]) -> Run:
        """`spec` is JSON (see `carril._internal.spec`), `function` the hash of a blob."""
    def submit_experiment(self, spec: str, constants: list[Any], function: str, environment: dict[str, str]) -> Run:
        """`spec` is JSON (see `carril.tune._plan`), which names `constants` by number."""
    def nodes(self) -> list[dict[str, Any]]:
        """One dict per node: id, hostname, address, total, free."""
    def shutdown(self) -> None:
        """Ends a private head (and waits for it); closes the connection to another. Idempotent."""

@final
class Run:
    """One submitted run."""

    @property
    def run_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str:
        """Where the run is kept: a local path or a URI."""
    def watch(self, reports: bool, output: bool, quiet: bool = False) -> None:
        """Subscribes: `reports` asks for every collated report (for callbacks), otherwise only sampled progress comes; with
        `quiet` trials are told of when they are made and when they fail."""
    def next_event(self) -> tuple[str, dict[str, Any]] | None:
        """Waits for the next event; None after the last one. Kinds and their keys:

        state: state, reason
        started: workers [{rank, pid, node, address, how}]
        reported: iteration, metrics, ranks {rank: metrics}, checkpoint {index, path, metrics, iteration} or None
               (a report with a checkpoint, and those after it, come when the checkpoint is settled)
        progress: iteration, metrics, checkpoints, time_total_s, saved
        standing: done, total, data, epoch, behind, reports_behind, usage
        output: rank, text (bytes, whole lines)
        warning: text
        failed: failures [{rank, code, origin, retryable, message, hints, exception_type, traceback, exception, location,
               exit_code, signal}]
        restarted: attempt (the number of the next one), reason, code, at (Unix time)
        ended: status ("finished", "failed", "aborted", "preempted"), headline, failure {code, origin, retryable, message, hints} or None,
               failures (as above), metrics, ranks {rank: metrics}, checkpoints [as above], return_values (by rank: hash or ""),
               iterations, seconds, restarts [as above]
        """
    def stop(self, reason: str, force: bool = False) -> None: ...
    def answer(self, question: int, answer: dict[str, Any]) -> None:
        """Of an experiment: what the user has decided."""
    def preempt(self, reason: str) -> None:
        """The machine is going to be taken: the function is asked for a last checkpoint, and the run ends."""

@final
class Storage:
    """A place that holds files under keys: a local directory or an object store's prefix. Every call may wait."""

    def __new__(cls, location: str) -> Storage:
        """`/abs/path`, `file://`, `s3://`, `gs://`, `az://`. Raises where credentials are missing."""
    @property
    def location(self) -> str: ...
    def join(self, key: str) -> Storage: ...
    def read(self, key: str) -> bytes | None: ...
    def write(self, key: str, data: bytes) -> None: ...
    def list(self) -> builtins.list[tuple[str, int]]:
        """Every file below, with its size."""
    def names(self) -> builtins.list[str]:
        """The first level only."""
    def upload_directory(self, directory: str) -> None: ...
    def download_directory(self, directory: str, verify: bool) -> None:
        """All files below; with `verify` compared with the manifest where there is one, while they are copied."""
    def check(self, shared: str | None) -> None:
        """Compares a checkpoint's files with its manifest: each once per process, and once for all that give the directory `shared`."""
    def delete_all(self) -> None: ...
    def checkpoints(self, verify: bool) -> builtins.list[dict[str, Any]]:
        """Of a run: name, iteration, metrics, bytes, created, validation, damage (what is wrong, or None), in order of iteration."""

@final
class Collective:
    """This process among the workers of its host, over shared memory. Arrays are an address and a length."""

    @staticmethod
    def offer(world_size: int) -> tuple[Collective, str]:
        """A new group with this process as rank 0, and the address at which the others join."""
    @staticmethod
    def join(address: str, rank: int) -> Collective: ...
    def broadcast(self, kind: str, values: tuple[int, int], root: int, timeout_s: float) -> None: ...
    def all_reduce(self, kind: str, values: tuple[int, int], op: str, timeout_s: float) -> None: ...
    def all_gather(self, kind: str, own: tuple[int, int], all: tuple[int, int], timeout_s: float) -> None: ...
    def reduce_scatter(
        self, kind: str, all: tuple[int, int], own: tuple[int, int], op: str, timeout_s: float
    ) -> None: ...
    def close(self) -> None:
        """Leaves the group: ranks that wait for this one are told."""

@final
class Scheduler:
    """A scheduler of the core that decides in the driver. Decisions are in the words of an answer to the head."""

    @staticmethod
    def make(spec: str, constants: list[Any], seed: int) -> Scheduler:
        """`spec` is JSON, as in that of an experiment, which names `constants` by number."""
    def trial_added(self, trial: int, config: dict[str, Any]) -> dict[str, Any] | None:
        """The `config` to run it with, where that is another one; functions of the user draw what is at the paths in `ask`."""
    def configured(self, trial: int, config: dict[str, Any]) -> None: ...
    def no_more_trials(self) -> None: ...
    def reported(self, trial: int, result: dict[str, Any], others_wait: bool) -> dict[str, Any]:
        """A `verdict` with its `reason`, and whether it `saves` a checkpoint for others.

        With "exploit" also `from`, `config` and `ask`, with "resize" `resources`.
        """
    def completed(self, trial: int, result: dict[str, Any]) -> None: ...
    def failed(self, trial: int) -> None: ...
    def choose(self, pending: list[int], paused: list[int]) -> int | None: ...
    def take_orders(self) -> list[dict[str, Any]]:
        """What was decided about trials that wait: each is a verdict with its `trial`."""
    def describe(self) -> str: ...
    @staticmethod
    def restored(state: str) -> Scheduler:
        """From what it was pickled as."""

@final
class Session:
    """The Rust half of a worker: its thread keeps the connection to the agent while Python is busy."""

    @staticmethod
    def connect() -> Session:
        """By the environment: CARRIL_AGENT (socket) and CARRIL_WORKER (run/attempt/rank)."""
    def set_progress(self, done: float, total: float) -> None: ...
    def set_rows_read(self, data: str, epoch: int, done: int, total: int) -> None:
        """How many rows of its part of a data set this rank has read in an epoch."""
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_world_size(self) -> int: ...
    @property
    def node_rank(self) -> int: ...
    @property
    def run_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def run_name(self) -> str: ...
    @property
    def run_directory(self) -> str:
        """A local directory: the run's own, or with remote storage the one that is mirrored there."""
    @property
    def storage(self) -> str:
        """Where the run is kept: a local path, a URI, or a path in the Python file system of `filesystem_path`."""
    @property
    def filesystem_path(self) -> str:
        """A local file with the pickled `storage_filesystem`; empty without one."""
    @property
    def devices(self) -> list[str]: ...
    @property
    def function_path(self) -> str:
        """A local file that holds the function's blob."""
    def ready(self, stacks: bool = False) -> None:
        """The user's function begins now. With `stacks`, this process answers STACK_SIGNAL."""
    def report(
        self,
        metrics: dict[str, Any],
        directory: str | None = None,
        move: bool = False,
        checkpoint_name: str | None = None,
        mode: str = "sync",
        validation: tuple[str, float | None] | None = None,
        silent: bool = False,
    ) -> str:
        """Appends to this rank's log. With `directory` its files are taken first.

        In a trial it waits for what is decided about the report, and returns that: "continue", "save", "pause" or
        "stop". `silent` is only for the checkpoint: nobody hears of the report.

        After a preemption was told, a report with a checkpoint returns only if that could not be stored.
        `mode` is "sync" (with remote storage it waits for the commit), "async" (it never does) or "in_place":
        `directory` then is the checkpoint's place inside the run's storage, where the files are already.
        """
    def next(self) -> Session | None:
        """After `returned`, in a process that serves many trials: the session of the next one; None to leave."""
    @property
    def is_reused(self) -> bool:
        """Whether this process serves another trial after this one."""
    @property
    def environment(self) -> dict[str, str]:
        """Of a process that has served another trial before: what changes in its environment."""
    @property
    def working_directory(self) -> str: ...
    @property
    def trial(self) -> dict[str, Any] | None:
        """id, name, experiment, resources, iteration, seconds, config; None where the run is no trial."""
    @property
    def began_from(self) -> str | None:
        """The checkpoint that this attempt goes on from."""
    @property
    def node_directory(self) -> str:
        """A directory that the workers of this node share, and that goes with the head."""
    def set_data_position(self, position: str) -> None:
        """How far the data sets have been read, as JSON: it goes with every report from now on."""
    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint of this rank, as a path or URI; waits until one that was just reported is settled."""
    def checkpoints(self, timeout: float | None = None, validated: bool = False) -> list[dict[str, Any]]:
        """The checkpoints that are kept, the best last: path, metrics, iteration, validation.

        Waits until what this rank has reported is settled and, with `validated`, checked: for so many seconds at most.
        """
    def preemption(self) -> tuple[str, float] | None:
        """Why, and until when in Unix time a last checkpoint is waited for; None while nobody takes the machine."""
    def barrier(self) -> None: ...
    def broadcast(self, payload: bytes | None) -> bytes:
        """Rank 0 gives the payload, the others None."""
    def put_blob(self, data: bytes) -> str: ...
    def returned(self, value: str | None) -> None:
        """`value` is the hash of a blob that holds the pickled return value."""
    def failed(
        self, message: str, exception_type: str, traceback: str, location: str, exception: bytes | None, code: str
    ) -> None: ...
    def is_told_to_exit(self, within: float = 0.0) -> bool:
        """Whether the agent has told this process to go, now or within so many seconds."""
    def wait_exit(self) -> None:
        """Waits until the agent lets this process go."""

@final
class Buffer:
    """Memory of a column: it speaks the buffer protocol."""

    def __len__(self) -> int: ...

@final
class Block:
    """Columns of equal length, as Arrow holds them."""

    @staticmethod
    def of_columns(columns: list[tuple[str, Any]], rows: int) -> Block: ...
    @staticmethod
    def of_arrow(given: object) -> list[Block]:
        """Of anything that has `__arrow_c_stream__`."""
    @staticmethod
    def of_ipc(data: bytes) -> Block: ...
    @staticmethod
    def concat(blocks: list[Block]) -> Block: ...
    @staticmethod
    def alike(blocks: list[Block]) -> list[Block]: ...
    def __len__(self) -> int: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def types(self) -> list[str]: ...
    @property
    def bytes(self) -> int: ...
    def beside(self, other: Block) -> Block:
        """Its columns, and those of another one with as many rows."""
    def slice(self, begin: int, rows: int) -> Block: ...
    def take(self, places: list[int]) -> Block: ...
    def column(self, number: int) -> Any: ...
    def values(self, number: int) -> list[Any]: ...
    def project(self, columns: list[tuple[str, str]]) -> Block: ...
    def to_ipc(self) -> builtins.bytes: ...
    def __reduce__(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> Any: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> Any: ...

@final
class Source:
    """Where rows come from."""

    @staticmethod
    def open(spec: str) -> Source:
        """`spec` is JSON (see `carril.data.read_api`)."""
    @staticmethod
    def of_blocks(blocks: list[Block]) -> Source: ...
    def count(self, threads: int) -> list[int]:
        """The rows of each unit; those that are not known are counted by reading."""
    def subset(self, selection: str, rows: list[int]) -> Source:
        """`{"range": {"begin", "end"}}` or `{"chance": {"rows", "seed", "others"}}`, as JSON; `rows` is what `count` gave."""
    @staticmethod
    def union(parts: list[tuple[Source, list[Transform]]], empty: Block) -> Source: ...
    def schema(self) -> dict[str, str]: ...
    def empty(self) -> Block: ...
    def units(self) -> list[tuple[int | None, int]]: ...
    def files(self) -> list[str]: ...
    def warnings(self) -> list[str]:
        """What was damaged and passed over so far."""

@final
class Transform:
    """What becomes of blocks on their way."""

    @staticmethod
    def columns(spec: str) -> Transform: ...
    @staticmethod
    def pool(control: int, processes: int, keeps_rows: bool) -> Transform:
        """Of so many processes, forked by the one at the other end of the socket `control`."""
    def apply(self, block: Block) -> Block: ...

@final
class Stream:
    """Batches of one pass, read ahead by threads."""

    def __new__(cls, source: Source, transforms: list[Transform], spec: str) -> Stream: ...
    def next(self) -> Block | None: ...
    @property
    def done(self) -> int:
        """How many pieces were handed over."""
    @property
    def bytes_in_memory(self) -> int: ...
    @property
    def pieces(self) -> int: ...

@final
class Positions:
    """Where the ranks of a data set were when a checkpoint was made."""

    @staticmethod
    def of_manifest(manifest: bytes, checkpoint: str, name: str) -> Positions:
        """Out of the bytes of a manifest, whose checksum is verified."""
    def __len__(self) -> int: ...
    def of_rank(self, rank: int) -> Positions:
        """Of one rank alone, for a data set that each of them reads whole."""
    def carried(self) -> str | None:
        """What a rank saves that has not asked for the data set since it resumed, as JSON."""

@final
class Shard:
    """The part of a data set that one of several ranks reads."""

    def __new__(
        cls,
        source: Source,
        transforms: list[Transform],
        options: str,
        saved: Positions | None,
        session: Session | None,
    ) -> Shard: ...
    def progress(self) -> str:
        """What a checkpoint keeps, as JSON."""
    @property
    def epoch(self) -> int: ...
    def begin(self, cut: str) -> Epoch:
        """The next epoch, or what is left of one."""

@final
class Epoch:
    """One pass over a shard. It leaves the other ranks when it goes before its end."""

    def next(self) -> Block | None: ...
    def hand_over(self, rows: int) -> None:
        """Of the last batch only so many rows are handed over yet."""
    @property
    def number(self) -> int:
        """The number of this epoch, from 0."""
    @property
    def rows_read(self) -> tuple[int, int] | None:
        """How many rows of its part of the epoch this rank was handed, and how many it has; None where rows are not counted."""
    @property
    def rest(self) -> int:
        """Counted rows that nobody gets, because they do not fill a row for each rank."""
    @property
    def left_out(self) -> tuple[int, int]:
        """How many rows this rank was handed or dropped itself, and how many of its own were left out because another had no more."""

@final
class Writer:
    """Files below a directory. What it has made is removed when it goes without having been finished."""

    @staticmethod
    def open(spec: str) -> Writer | None:
        """`spec` is JSON (see `carril.data._write`). None where files are there that are to be left alone."""
    def write(self, block: Block, name: str | None = None) -> None:
        """`name` is that of the file which the block begins, if it begins one."""
    def finish(self, empty: Block | None = None) -> list[str]:
        """The files that were written. `empty` has the columns, for the case that there were no rows."""
    def give_up(self) -> None: ...

def read_blocks(descriptor: int, count: int) -> list[Block]:
    """The blocks in shared memory."""

def write_blocks(descriptor: int, blocks: list[Block]) -> None: ...
def trial_states() -> list[tuple[str, bool]]:
    """The states of a trial by name, each with whether it is over, in the order in which they are told."""

def completed_lines(location: str) -> str | None:
    """The lines of an experiment that is over, with what the directories of its trials say besides; None for nothing more."""

def is_experiment_live(record: str) -> bool | None:
    """Whether a head has the experiment of this `experiment.json`; None where no owner is recorded."""

def panic(message: str) -> None:
    """For the tests of the boundary."""

def shield_from_preemption() -> None:
    """From here on SIGTERM, SIGUSR1 and SIGUSR2 act only when this process or its parent sends them."""

def show_title(name: str, command_line: str) -> None:
    """The name of this process in `top`, and its command line in `ps`."""

def end_with_parent(parent: int) -> None:
    """This process is killed when its parent ends, whose pid the caller knows."""

def to_plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """What `report` makes of these metrics: used where there is no worker (num_workers=0). Objects stay themselves."""

def blob_hash(data: bytes) -> str:
    """The hash by which `run.json` names the files that it keeps."""

def list_manifests(manifests: list[tuple[str, bytes, list[tuple[str, int]]]], verify: bool) -> list[dict[str, Any]]:
    """As `Storage.checkpoints`, for manifests that were read elsewhere: name, content, and the files there with their sizes."""

def read_restarts(segments: list[bytes]) -> list[dict[str, Any]]:
    """The restarts since the last `fit()`, from the segments of a run's journal: attempt, reason, code, at."""

def check_file(location: str, manifest: bytes, key: str, data: bytes | None) -> None:
    """Raises if the manifest names the file with other content; `data` is None if it is not there."""

def amend_manifest(location: str, manifest: bytes, key: str, data: bytes | None) -> bytes | None:
    """The manifest for other content of a file, or without it; None if it does not name the file."""

def error_codes() -> list[tuple[str, str, bool]]:
    """Every code with its origin and whether it is retryable, for the test of the error map."""
