from __future__ import annotations

import threading

import pytest

from oauthbroker.tools.changesets.changesets import MOST_OPEN, ChangesetRefused, open_changesets
from oauthbroker.tools.changesets.files import AllowedFiles
from tests.unit.tools.changesets.repositories import BUNDLE, EVERYTHING, OWNER, Desk, bare_repository, git, no_problem


@pytest.fixture
def desk(tmp_path):
    return Desk.made(tmp_path)


@pytest.mark.rule("004-6.4-1")
def test_a_changeset_is_a_worktree_with_the_files_of_the_newest_revision(desk):
    opened = desk.changesets.open(OWNER)
    found = {
        it.relative_to(opened.folder).as_posix(): it.read_text() for it in opened.folder.rglob("*") if it.is_file()
    }
    assert (BUNDLE, desk.tip()) == (found, opened.base)
    assert (opened.folder / "run.sh").stat().st_mode & 0o100
    assert str(opened.folder) in git(desk.repository, "worktree", "list")


def test_a_worktree_does_not_lead_to_the_repository(desk):
    opened = desk.changesets.open(OWNER)
    assert not (opened.folder / ".git").exists()


@pytest.mark.rule("004-6.4-2")
def test_a_commit_is_a_revision_on_the_branch_and_closes_the_changeset(desk):
    opened = desk.changesets.open(OWNER)
    (opened.folder / "prompts/planner.md").write_text("Plan well.\n")
    (opened.folder / "prompts/writer.md").write_text("Write.\n")
    (opened.folder / "agents/planner.yaml").unlink()
    answer = desk.commit(opened.id).to_json()
    assert {
        "status": "ok",
        "baseRef": f"git:{opened.base}",
        "newRef": f"git:{desk.tip()}",
        "summary": {
            "filesChanged": ["prompts/planner.md"],
            "filesAdded": ["prompts/writer.md"],
            "filesDeleted": ["agents/planner.yaml"],
        },
    } == answer
    assert ["prompts/planner.md", "prompts/writer.md", "run.sh"] == desk.files()
    assert desk.text("prompts/planner.md") == "Plan well."
    assert git(desk.repository, "ls-tree", "main", "run.sh").startswith("100755")
    assert opened.base == git(desk.repository, "rev-parse", "main~1")
    assert [] == desk.worktrees()


NAMES = ["prompts/안녕.txt", "prompts/é.md", "prompts/日本 語.md", "prompts/\N{PEDESTRIAN}.md"]


@pytest.mark.parametrize("allowed", [EVERYTHING, AllowedFiles([], [])])
def test_an_answer_names_each_file_by_its_own_path_in_any_script(desk, allowed):
    opened = desk.changesets.open(OWNER)
    for name in NAMES:
        (opened.folder / name).write_text("x")
    answer = desk.commit(opened.id, allowed).to_json()
    assert sorted(NAMES) == answer["summary"]["filesAdded"]
    assert set(NAMES) in ({each["file"] for each in answer.get("rejected", ())}, set(desk.files()) - set(BUNDLE))


@pytest.mark.rule("004-12.4-3")
def test_the_history_is_the_only_log(desk):
    for text in ("one\n", "two\n"):
        opened = desk.changesets.open(OWNER)
        (opened.folder / "run.sh").write_text(text)
        assert "rejected" == desk.commit(opened.id, AllowedFiles([], [])).status
        assert "ok" == desk.commit(opened.id).status
    left = desk.changesets.open(OWNER)
    assert ["why", "why", "first"] == git(desk.repository, "log", "--format=%s", "main").splitlines()
    assert ["two", "one"] == [git(desk.repository, "show", f"main{at}:run.sh") for at in ("", "~1")]
    assert {"worktrees", "revisions"} == {it.name for it in desk.root.iterdir()}
    assert [left.id] == [it.name for it in (desk.root / "worktrees").iterdir()]
    assert "refs/heads/main" == git(desk.repository, "for-each-ref", "--format=%(refname)")


def test_a_commit_without_changes_makes_no_revision(desk):
    before = desk.tip()
    assert ("ok", before) == ((it := desk.commit(desk.changesets.open(OWNER).id)).status, it.new)
    assert before == desk.tip()


def test_a_committed_changeset_cannot_be_committed_again(desk):
    opened = desk.changesets.open(OWNER)
    desk.commit(opened.id)
    with pytest.raises(ChangesetRefused):
        desk.commit(opened.id)


def test_a_changeset_belongs_to_the_instance_that_opened_it(desk):
    opened = desk.changesets.open("other/thread-2")
    with pytest.raises(ChangesetRefused):
        desk.commit(opened.id)
    assert ([opened.folder], []) == (desk.changesets.folders("other/thread-2"), desk.changesets.folders(OWNER))


def test_an_owner_has_a_bounded_number_of_changesets(desk):
    opened = [desk.changesets.open(OWNER) for _ in range(MOST_OPEN)]
    with pytest.raises(ChangesetRefused, match="8 changesets are open: commit or discard one of them") as refused:
        desk.changesets.open(OWNER)
    assert all(each.id in str(refused.value) for each in opened)
    assert desk.changesets.open("another/thread").id not in str(refused.value)


def test_a_changeset_that_is_discarded_makes_space_and_changes_nothing(desk):
    tip, (first, *_) = desk.tip(), [desk.changesets.open(OWNER) for _ in range(MOST_OPEN)]
    (first.folder / "prompts/planner.md").write_text("Never.\n")
    with pytest.raises(ChangesetRefused, match="no changeset of this agent has this id"):
        desk.changesets.discard(first.id, "another/thread")
    desk.changesets.discard(first.id, OWNER)
    assert (False, tip) == (first.folder.exists(), desk.tip())
    again = desk.changesets.open(OWNER)
    with pytest.raises(ChangesetRefused, match=f"open are .*{again.id}"):
        desk.changesets.discard(first.id, OWNER)


@pytest.mark.rule("004-6.4-3")
@pytest.mark.parametrize(
    ("swarm", "agent", "named"),
    [
        (["**"], ["prompts/**"], {"run.sh"}),
        (["prompts/**"], ["**"], {"run.sh"}),
        (["*.sh"], ["prompts/**"], {"run.sh", "prompts/planner.md"}),
        ([], ["**"], {"run.sh", "prompts/planner.md"}),
        (["**", "!run.sh"], ["**"], {"run.sh"}),
        (["Prompts/**", "run.sh"], ["**"], {"prompts/planner.md"}),
    ],
)
def test_a_file_has_to_be_in_the_lists_of_swarm_and_agent(desk, swarm, agent, named):
    opened = desk.changesets.open(OWNER)
    (opened.folder / "prompts/planner.md").write_text("Plan well.\n")
    (opened.folder / "run.sh").unlink()
    before, commit = desk.tip(), desk.commit(opened.id, AllowedFiles(swarm, agent))
    assert ("rejected", named) == (commit.status, {each.file for each in commit.rejected})
    assert before == desk.tip()


def test_a_rejected_changeset_is_fixed_and_committed(desk):
    opened = desk.changesets.open(OWNER)
    (opened.folder / "run.sh").write_text("no\n")
    (opened.folder / "prompts/planner.md").write_text("yes\n")
    allowed = AllowedFiles(["**"], ["prompts/*"])
    assert desk.commit(opened.id, allowed).status == "rejected"
    (opened.folder / "run.sh").write_text(BUNDLE["run.sh"])
    assert desk.commit(opened.id, allowed).status == "ok"
    assert desk.text("prompts/planner.md") == "yes"


def test_a_bundle_that_is_invalid_as_a_whole_is_rejected_with_its_problems(tmp_path):
    def validate(folder):
        bad = (folder / "run.sh").read_text() == "bad\n"
        return [f"{folder}/run.sh:1:1: bad, fix it"] if bad else []

    desk = Desk.made(tmp_path, validate)
    opened, before = desk.changesets.open(OWNER), desk.tip()
    (opened.folder / "run.sh").write_text("bad\n")
    answer = desk.commit(opened.id).to_json()
    assert ("rejected", None, ["run.sh:1:1: bad, fix it"]) == (
        answer["status"],
        answer["newRef"],
        answer["problems"],
    )
    assert before == desk.tip()
    (opened.folder / "run.sh").write_text("good\n")
    assert desk.commit(opened.id).status == "ok"


@pytest.mark.rule("004-6.4-4")
def test_changes_of_other_files_are_put_on_the_newest_revision(desk):
    first, second = desk.changesets.open(OWNER), desk.changesets.open(OWNER)
    (first.folder / "run.sh").write_text("first\n")
    (second.folder / "prompts/planner.md").write_text("second\n")
    assert ["ok", "ok"] == [desk.commit(each.id).status for each in (first, second)]
    assert ("first", "second") == (desk.text("run.sh"), desk.text("prompts/planner.md"))
    assert "3" == git(desk.repository, "rev-list", "--count", "main")


@pytest.mark.rule("004-6.4-4")
def test_a_file_that_two_changesets_change_is_a_conflict_for_the_second(desk):
    first, second = desk.changesets.open(OWNER), desk.changesets.open(OWNER)
    (first.folder / "run.sh").write_text("first\n")
    (second.folder / "run.sh").unlink()
    desk.commit(first.id)
    commit = desk.commit(second.id)
    assert ("rejected", ["run.sh"]) == (commit.status, [each.file for each in commit.rejected])
    assert desk.text("run.sh") == "first"


def test_the_same_change_twice_is_no_conflict(desk):
    first, second = desk.changesets.open(OWNER), desk.changesets.open(OWNER)
    for each in (first, second):
        (each.folder / "run.sh").write_text("same\n")
    assert desk.commit(first.id).new == desk.commit(second.id).new == desk.tip()


def test_many_commits_at_once_all_arrive(desk):
    opened = [desk.changesets.open(OWNER) for _ in range(MOST_OPEN)]
    for count, each in enumerate(opened):
        (each.folder / f"prompts/{count}.md").write_text("new\n")
    others = desk.again()  # its open changesets stay, as after a start of another process
    ends = [
        threading.Thread(
            target=(others if count % 2 else desk.changesets).commit, args=(each.id, OWNER, EVERYTHING, "x")
        )
        for count, each in enumerate(opened)
    ]
    for each in ends:
        each.start()
    for each in ends:
        each.join(60)
    assert {f"prompts/{count}.md" for count in range(MOST_OPEN)} <= set(desk.files())


@pytest.mark.rule("004-12.4-5")
def test_a_commit_is_active_when_the_next_step_asks_for_the_newest_revision(desk):
    before = desk.changesets.newest()
    opened = desk.changesets.open(OWNER)
    (opened.folder / "run.sh").write_text("new\n")
    desk.commit(opened.id)
    after = desk.changesets.newest()
    assert (BUNDLE["run.sh"], "new\n") == tuple((it.folder / "run.sh").read_text() for it in (before, after))
    assert after.ref == f"git:{desk.tip()}"


def test_a_repository_with_the_branch_checked_out_is_refused(tmp_path):
    bare_repository(tmp_path)
    with pytest.raises(ValueError, match="bare"):
        open_changesets(tmp_path / "work" / ".git", tmp_path / "system", no_problem)


@pytest.mark.parametrize("state", ["var/store", "var/changesets/store", "var/keys/broker.key"])
def test_worktrees_share_no_parent_folder_with_the_brokers_state(tmp_path, state):
    repository = bare_repository(tmp_path / "bundle")
    with pytest.raises(ValueError, match="parent folder"):
        open_changesets(repository, tmp_path / "var/changesets", no_problem, apart_from=[tmp_path / state])
    open_changesets(repository, tmp_path / "apart/changesets", no_problem, apart_from=[tmp_path / state])
