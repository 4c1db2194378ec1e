"""Repositories made by hand: which commits are changes of which file, and when a file was there."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshopt.errors import SourceDataError
from freshopt.logs import ChangeHistory
from freshopt.tools import read_git
from freshopt.tools.git import _Touched, fields
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.refusals import present, refused

DAY = 86400
BEGIN = 1_700_006_400  # a midnight UTC


class Repository:
    """A repository whose commits are made on given days."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, day: float = 0.0) -> None:
        when = f"{int(BEGIN + day * DAY)} +0200"
        identity = {"GIT_AUTHOR_DATE": "1000000000 +0000", "GIT_COMMITTER_DATE": when}
        for who in ("AUTHOR", "COMMITTER"):
            identity |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org"}
        nothing = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env={**os.environ, **identity, **nothing},
            check=True,
            capture_output=True,
        )

    def commit(self, day: float, **files: str | None) -> None:
        """Write files (None removes one; ``__`` stands for a slash) and commit them."""
        for key, text in files.items():
            name = self.path / key.replace("__", "/")
            if text is None:
                name.unlink()
            else:
                name.parent.mkdir(exist_ok=True)
                name.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x", day=day)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Files a (4 changes, one by a merge), b (deleted on day 6), docs/c (since day 2), d (gone, and back)."""
    made = Repository(tmp_path / "r")
    made.commit(0, a="1", b="1", d="1")
    made.commit(1, a="2")
    made.commit(2, a="3", docs__c="1", d=None)
    made.git("checkout", "-q", "-b", "side")
    made.commit(2.5, a="4")
    made.commit(3, a="5")
    made.git("checkout", "-q", "main")
    made.commit(4, b="2")
    made.git("merge", "-q", "--no-ff", "-m", "merge", "side", day=5)
    made.commit(6, b=None, d="2")
    made.commit(8, a="6")
    made.commit(10)
    return made


def told(history: ChangeHistory) -> dict[str, tuple[list[float], float, float]]:
    """Per file its changes and the time watched, in days from BEGIN."""
    shift = (present(history.origin).timestamp() - BEGIN) / DAY
    return {
        name: (
            (history.time[history.offsets[k] : history.offsets[k + 1]] + shift).tolist(),
            history.start[k] + shift,
            history.end[k] + shift,
        )
        for k, name in enumerate(history.names.tolist())
    }


ALL = {
    "a": (
        [1.0, 2.0, 5.0, 8.0],
        0.0,
        10.0,
    ),  # the branch's two commits are one change, on the day of the merge
    "docs/c": ([], 2.0, 10.0),
    "d": ([2.0, 6.0], 0.0, 10.0),
}


def test_each_commit_of_the_branch_that_touches_a_file_is_a_change(repository: Repository) -> None:
    assert told(read_git(repository.path)) == ALL
    assert (
        read_git(repository.path, time_unit="hour").time.max() == 7 * 24.0
    )  # from the first change, on day 1


def test_a_deleted_file_ends_with_its_deletion(repository: Repository) -> None:
    assert told(read_git(repository.path, deleted=True)) == {**ALL, "b": ([4.0], 0.0, 6.0)}


@pytest.mark.parametrize("since", ["2023-11-18", "2023-11-18T02:00:00+02:00"])
def test_since_cuts_the_history_off(repository: Repository, since: str) -> None:
    seen = told(read_git(repository.path, since=since))  # from day 3 on
    assert seen == {
        "a": ([5.0, 8.0], 3.0, 10.0),
        "docs/c": ([], 3.0, 10.0),
        "d": ([], 6.0, 10.0),  # added again on day 6
    }


def test_since_after_the_last_commit_is_refused(repository: Repository) -> None:
    with pytest.raises(SourceDataError, match="since is 2033-01-01, after the last commit, at 2023-11-2"):
        read_git(repository.path, since="2033-01-01")


def test_paths_folders_and_few_changes(repository: Repository) -> None:
    assert set(told(read_git(repository.path, min_changes=2))) == {"a", "d"}
    assert set(told(read_git(repository.path, paths=["docs", "d"]))) == {"docs/c", "d"}
    assert told(read_git(repository.path / "docs")) == {"docs/c": ALL["docs/c"]}
    refused(r"no file is left of the 4.*fewer changes", read_git, repository.path, min_changes=5)


def test_bare_clones_and_shallow_ones(repository: Repository, tmp_path: Path) -> None:
    repository.git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))
    assert told(read_git(tmp_path / "bare")) == ALL
    repository.git("clone", "-q", "--depth", "3", f"file://{repository.path}", str(tmp_path / "shallow"))
    seen = told(read_git(tmp_path / "shallow"))
    assert seen["a"] == ([8.0], 6.0, 10.0)  # known from the commit on at which the clone begins


def test_a_clone_of_the_last_commit_alone_is_told_to_fetch_the_rest(
    repository: Repository, tmp_path: Path
) -> None:
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.path}", str(tmp_path / "last"))
    refused(r"shallow clone with one commit.*git fetch --unshallow", read_git, tmp_path / "last")
    alone = Repository(tmp_path / "new")  # a repository that has but one commit yet is another matter
    alone.commit(0.0, a="1")
    assert told(read_git(alone.path)) == {"a": ([], 0.0, 0.0)}


def test_names_of_any_kind(tmp_path: Path) -> None:
    made = Repository(tmp_path / "r")
    names = [b"caf\xe9", "naïve ☃".encode(), b"with\nline", b'"quoted"', b" M ", b"-x", b"A"]
    for k in range(2):
        for name in names:
            Path(os.fsdecode(os.fsencode(made.path) + b"/" + name)).write_text(str(k))
        made.commit(float(k))
    seen = told(read_git(made.path))
    assert set(seen) == {"caf\\xe9", "naïve ☃", "with\nline", '"quoted"', " M ", "-x", "A"}
    assert all(changes == [1.0] for changes, _, _ in seen.values())


def test_settings_of_the_repository_change_nothing(repository: Repository, tmp_path: Path) -> None:
    spy = tmp_path / "ran"
    program = file_with(tmp_path / "program", f"#!/bin/sh\ntouch {spy}\n")
    program.chmod(0o755)
    for key, value in {
        "log.showSignature": "true",
        "gpg.program": str(program),
        "core.fsmonitor": str(program),
        "core.pager": str(program),
        "diff.external": str(program),
        "log.date": "relative",
        "core.quotePath": "true",
        "diff.renames": "copies",
        "log.follow": "true",
        "diff.relative": "true",
        "color.ui": "always",
    }.items():
        repository.git("config", key, value)
    assert told(read_git(repository.path)) == ALL
    assert told(read_git(repository.path, paths=["a"])) == {"a": ALL["a"]}
    assert not spy.exists()


def test_clocks_that_were_wrong(tmp_path: Path) -> None:
    made = Repository(tmp_path / "r")
    for day, text in ((5, "1"), (3, "2"), (40, "3"), (8, "4")):
        made.commit(day, a=text)
    assert told(read_git(made.path)) == {"a": ([3.0, 8.0, 40.0], 3.0, 40.0)}


def test_what_is_no_repository_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Repository(tmp_path / "unborn")
    (tmp_path / "plain").mkdir()
    for path, words in (
        ("no", "is not a folder"),
        ("plain", "not a git repository"),
        ("unborn", "have any commits"),
    ):
        refused(words, read_git, tmp_path / path)
    made = Repository(tmp_path / "r")
    made.commit(0, a="1")
    refused(r"since is 'soon'.*such as 2026-01-31", read_git, made.path, since="soon")
    monkeypatch.setenv("PATH", str(tmp_path / "plain"))
    assert shutil.which("git") is None
    refused("no git on this machine", read_git, made.path)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"M", b"A", b"", b"\nD", b"path", b"\xff", b"a" * 40 + b" 17", b"a" * 40]),
        max_size=8,
    )
)
def test_fields_that_make_no_sense_end_in_one_line(parts: list[bytes]) -> None:
    touched = _Touched()
    refusal = ""
    try:
        touched._take(iter(parts), Path("repository"))
    except SourceDataError as error:
        refusal = str(error)
    assert refusal == "" or refusal.startswith("git log of repository has the field")
    assert len(touched.file) == len(touched.time) == len(touched.status)


def test_fields_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("freshopt.tools.git.CHUNK", 3)
    (tmp_path / "stream").write_bytes(b"one\0\0three\0four")
    with (tmp_path / "stream").open("rb") as stream:
        assert list(fields(stream)) == [b"one", b"", b"three", b"four"]


def test_a_git_that_is_too_old_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text(
        "#!/bin/sh\necho 'fatal: unrecognized argument: --diff-merges' >&2\nexit 128\n"
    )
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(r"this git is too old: unrecognized .*git 2.31 or newer", read_git, tmp_path)
