"""The claim of a folder: one build at a time writes to it, on any machine.

A claim is a small file that only its holder creates: `1.json`, which no store creates twice. The holder writes to a
second file from time to time, and so shows that it is at work. If it is gone, another build creates the claim with the
next number. Of those who try, the store lets one succeed; that one lists the claims again, and holds the folder only if
there is none but its own and the one that it takes over. Two that create a claim each (because a third one was removed
in between) cannot both miss the other's file, since each creates before it lists.

Nobody compares the clocks of two machines: whether a holder is gone shows on its own machine by its process, and
elsewhere because its second file does not change for a while, by the clock of the one that looks.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, TypeVar

import msgspec

from transforms.base.errors import ParameterError, Unavailable
from transforms.storage.files import join, read_bytes
from transforms.storage.processes import is_running, start_of_process, this_machine
from transforms.storage.walking import names_below
from transforms.storage.writing import create, creates_exclusively, remove, remove_if_empty, write_atomically

_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")

# A claim, a sign, or one of them that was being written when its process was killed.
_NAME = re.compile(r"(\d+\.json|[0-9a-f]{32}\.sign)(\.[0-9a-f]{32})?")

# How often a holder shows that it is at work, and after which time without a sign it is taken for gone: longer than the
# retries of a store that fails.
_SECONDS_BETWEEN_SIGNS = 15.0
_SECONDS_WITHOUT_SIGN = 120.0
_SECONDS_BETWEEN_LOOKS = 1.0
# For so long after somebody looks, a job that was submitted may wait for its cluster to start it.
_SECONDS_TO_BEGIN = 600.0


class Holder(msgspec.Struct, frozen=True):
    """Who holds a claim.

    Args:
        token: unique to each claim.
        host: the name of the machine, for people.
        machine: what processes must have in common for their ids to mean the same.
        pid, started: the process, and when it started, since ids are used again.
        since: when it was claimed, for people.
        job: the job on a cluster that does the work, which may go on if the process ends; None if the process does it.
    """

    token: str
    host: str
    machine: str
    pid: int
    started: str | None
    since: str
    job: str | None

    def __str__(self) -> str:
        job = f", {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}, since {self.since}{job}"


class _Sign(msgspec.Struct, frozen=True):
    """A sign that a holder is at work.

    Args:
        time: makes it another one than those before it. It is of the writer's clock, and compared with no other.
        waits: whether the job was submitted and has not begun.
    """

    time: float
    waits: bool = False


_HOLDER, _SIGN = msgspec.json.Decoder(Holder), msgspec.json.Decoder(_Sign)


class Claim:
    """A claim of a folder by this process, or by a job that it submits. It can be pickled, for the job's workers.

    Args:
        folder: the url of the folder of claims; nothing else is in it.
        output: the folder that is claimed, as errors name it.
        job: names the job on a cluster that does the work; None if it is done by processes that end with this one.

    Attributes:
        is_left: whether it was left to the job, which then removes it.
    """

    def __init__(self, folder: str, output: str, job: str | None = None):
        self.is_left = False
        self._folder = folder
        self._output = output
        self._number = 0
        self._next_look = 0.0  # of the thread that keeps it, by the monotonic clock; 0 if there was none
        self._seen: tuple[_Sign, float] | None = None  # the last sign that this process saw or wrote, and when
        pid, now = os.getpid(), datetime.now(timezone.utc).replace(microsecond=0)
        self._holder = Holder(
            uuid.uuid4().hex, platform.node(), this_machine(), pid, start_of_process(pid), now.isoformat(), job
        )

    def __getstate__(self) -> dict[str, Any]:
        # A monotonic clock says nothing to another process.
        return self.__dict__ | {"_next_look": 0.0, "_seen": None}

    def take(
        self,
        job_has_ended: bool = False,
        replaces_own: bool = False,
        when_held: Callable[[Holder | None], None] | None = None,
    ) -> Holder | None:
        """Claim the folder.

        Args:
            job_has_ended: whether no job of this name is running, as its cluster says.
            replaces_own: whether an earlier claim of this process counts as that of one that is gone. If work under it
                goes on, it ends before it publishes anything.
            when_held: is called once for each that holds the folder, with the holder, None if that cannot be read;
                then this waits until the folder is free.

        Returns:
            The holder that is gone, from which the folder was taken over; None if nobody held it.

        Raises:
            ParameterError: if another build holds the folder and this does not wait, or the store has no exclusive
                create.
            StoreError: if the store fails.
        """
        if not creates_exclusively(self._folder):
            raise self._cannot_be_claimed()
        report = functools.cache(when_held or self._warn_of_submitted)
        while True:
            number, before = self._highest()
            if number and not self._is_gone(number, before, job_has_ended, replaces_own, report):
                if when_held:
                    report(before)
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
                    continue
                raise ParameterError(
                    "output",
                    self._output,
                    f"another run is writing to it: {before or 'its claim cannot be read'}. Wait until it has ended, "
                    "or give another folder.",
                )
            self._number = number + 1
            if self._create() and self._is_alone_except(number, before):
                self._remove_others()
                return before
            self._number = 0
            time.sleep(random.uniform(0, 0.2))

    def check(self) -> None:
        """Check that this claim still counts. Raises Unavailable if another build took it over."""
        holder = None
        for pause in (0.0, 1.0, 2.0):  # another build may create a claim, see this one and withdraw
            time.sleep(pause)
            _, holder = self._highest()
            if holder == self._holder:
                return
        raise Unavailable(
            f"{self._output}: this run did not renew its lock for {_SECONDS_WITHOUT_SIGN:.0f} seconds, and another "
            f"one took over its output{f': {holder}' if holder else ''}. Rows of the two are not mixed."
        )

    def show_work(self) -> None:
        """Check that this claim still counts, and show that its holder is at work, unless another worker just did."""
        self.check()
        sign, now = self._sign_of(self._holder), time.monotonic()
        is_new = self._seen is None or (sign != self._seen[0] and now - self._seen[1] < _SECONDS_BETWEEN_SIGNS)
        if sign is None or sign.waits or not is_new:
            sign = _Sign(time.time())
            self._write_sign(sign)
        self._seen = sign, now

    def leave_to_job(self) -> None:
        """Leave the claim to the job, whose workers keep it from now on. It may wait for ten minutes to begin."""
        self.is_left = True
        if self._highest()[1] == self._holder:
            self._write_sign(_Sign(time.time(), waits=True))

    def release(self) -> None:
        """Remove the claim, if it was taken and still counts. Raises StoreError if the store fails."""
        if self._number and self._highest()[1] == self._holder:
            remove(self._sign_url(self._holder))
            remove(self._url(self._number))
            remove_if_empty(self._folder)

    @contextmanager
    def kept(self, when_lost: Callable[[Exception], None]) -> Iterator[None]:
        """Keep the claim inside, from a thread. However short it is kept each time, its signs are as far apart.

        Args:
            when_lost: is called from the thread if another build took the claim over.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._keep, args=(ended, when_lost), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_SECONDS_BETWEEN_SIGNS)

    def _keep(self, ended: threading.Event, when_lost: Callable[[Exception], None]) -> None:
        while True:
            self._next_look = self._next_look or time.monotonic() + _SECONDS_BETWEEN_SIGNS * random.uniform(0.5, 1)
            if ended.wait(max(0.0, self._next_look - time.monotonic())):
                return
            self._next_look = 0.0
            try:
                self.show_work()
            except Unavailable as error:
                when_lost(error)
                return
            except OSError:  # a store that fails now; nobody else can take over while it does
                continue

    def _url(self, number: int) -> str:
        return join(self._folder, f"{number}.json")

    def _sign_url(self, holder: Holder) -> str:
        return join(self._folder, f"{holder.token}.sign")

    def _numbers(self) -> list[int]:
        stems = [name.removesuffix(".json") for name in names_below(self._folder) if name.endswith(".json")]
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def _highest(self) -> tuple[int, Holder | None]:
        """The number of the claim that counts, and its holder; None if it cannot be read. 0 if there is none."""
        while numbers := self._numbers():
            with suppress(FileNotFoundError):  # taken over or released since it was listed
                return numbers[-1], self._holder_of(numbers[-1])
        return 0, None

    def _holder_of(self, number: int) -> Holder | None:
        return _decoded(read_bytes(self._url(number)), _HOLDER)

    def _sign_of(self, holder: Holder) -> _Sign | None:
        with suppress(FileNotFoundError):
            return _decoded(read_bytes(self._sign_url(holder)), _SIGN)
        return None

    def _write_sign(self, sign: _Sign) -> None:
        write_atomically(self._sign_url(self._holder), msgspec.json.encode(sign))

    def _is_gone(
        self,
        number: int,
        holder: Holder | None,
        job_has_ended: bool,
        replaces_own: bool,
        report: Callable[[Holder | None], None],
    ) -> bool:
        """Whether the holder of a claim is gone. If it is elsewhere, this waits for a sign of it.

        report: is called before it waits for a job to begin, which takes long.
        """
        sign = self._sign_of(holder) if holder else None
        waits = sign is not None and sign.waits
        if holder:
            is_here = holder.machine == self._holder.machine
            is_own = is_here and (holder.pid, holder.started) == (self._holder.pid, self._holder.started)
            lives = is_running(holder.pid, holder.started) and not (is_own and replaces_own)
            if is_here and (lives or holder.job is None):
                return not lives
            if job_has_ended and holder.job == self._holder.job and (is_here or waits):
                return True
        if waits:
            report(holder)
        end = time.monotonic() + (_SECONDS_TO_BEGIN if waits else _SECONDS_WITHOUT_SIGN)
        while time.monotonic() < end:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            if self._highest() != (number, holder):
                return True  # released, or held by another one: it is looked at anew
            if holder and self._sign_of(holder) != sign:
                return False
        return True

    def _warn_of_submitted(self, holder: Holder | None) -> None:
        minutes = _SECONDS_TO_BEGIN / 60
        problem = "chatmill: %s: waiting for up to %.0f minutes for a submitted job to begin: %s"
        _LOGGER.warning(problem, self._output, minutes, holder)

    def _create(self) -> bool:
        content = msgspec.json.encode(self._holder)
        if not create(self._url(self._number), content):
            # The first answer may have been lost.
            with suppress(FileNotFoundError):
                return self._holder_of(self._number) == self._holder
            return False
        if create(self._url(self._number), content):
            remove(self._url(self._number))
            raise self._cannot_be_claimed()
        return True

    def _is_alone_except(self, number: int, before: Holder | None) -> bool:
        """Whether there is no other claim than the one that this one takes over. If there is, remove this one.

        Those before that one do not count: their holders were gone when it was made, and its own was killed before it
        removed them.
        """
        with suppress(FileNotFoundError):
            others = [other for other in self._numbers() if other != self._number and other >= number]
            if not others or (others == [number] and self._holder_of(number) == before):
                return True
        remove(self._url(self._number))
        return False

    def _remove_others(self) -> None:
        own = {f"{self._number}.json", f"{self._holder.token}.sign"}
        for name in names_below(self._folder):
            if name not in own and _NAME.fullmatch(name):
                remove(join(self._folder, name))

    def _cannot_be_claimed(self) -> ParameterError:
        return ParameterError(
            "output",
            self._output,
            "its store cannot create a file only if there is none, so that two builds might write to one folder. "
            "Expected a disk, s3://, gs:// or another store that can.",
        )


_of_steps: ContextVar[tuple[Claim | None, bool]] = ContextVar("claim_of_steps", default=(None, False))


@contextmanager
def kept_by_steps(claim: Claim | None, is_left: bool) -> Iterator[None]:
    """Let the steps that are applied inside keep a claim while they write.

    Args:
        claim: of the output; None if there is none, as outside.
        is_left: whether the last step removes it, because nobody waits for the end of the job.
    """
    token = _of_steps.set((claim, is_left))
    try:
        yield
    finally:
        _of_steps.reset(token)


class ClaimKeeper:
    """Keeps the claim of the output while a step writes to it.

    Make it while the pipeline is built, inside kept_by_steps. It is pickled with the DoFn.
    """

    def __init__(self) -> None:
        self._claim, self._is_left = _of_steps.get()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the claim inside. Raises Unavailable at the end if another build took it over."""
        if self._claim is None:
            yield
            return
        lost: list[Exception] = []
        with self._claim.kept(lost.append):
            yield
        if lost:
            raise lost[0]

    def check(self) -> None:
        """Raise Unavailable if another build took the claim over."""
        if self._claim:
            self._claim.check()

    def show_work(self) -> None:
        """Show that the holder is at work. Raises Unavailable if another build took the claim over."""
        if self._claim:
            self._claim.show_work()

    def release(self) -> None:
        """Remove the claim, if nobody waits for the job who does."""
        if self._claim and self._is_left:
            self._claim.release()


def _decoded(content: bytes, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
