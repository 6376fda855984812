"""Landing: every exit status, the lock, the check, nested agents, and who may land what."""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from side_agents.core import leases, observe, views
from side_agents.core.context import open_context
from side_agents.core.finish import FinishOptions, finish
from side_agents.core.landing import Outcome, TargetState
from side_agents.errors import RefusedError, SideAgentsError, UnknownAgentError, UsageError
from side_agents.infra import fs
from side_agents.infra.git import Git
from side_agents.models import AgentStatus, EndedBy, FinishPolicy, Lease, WaitingFor
from tests.integration.finish_support import Worker, Yard, is_linear, state_of, subjects
from tests.support.repositories import Repository, copy_repository
from tests.support.waiting import eventually


@pytest.fixture
def yard(repo: Repository) -> Yard:
    return Yard(repo, dict(os.environ))


def refs(repo: Repository) -> str:
    return repo.git("for-each-ref")


def conflicting(yard: Yard) -> Worker:
    agent = yard.worker("fix")
    agent.tree.commit("src/app.txt", "theirs\n", "agent")
    yard.repo.commit("src/app.txt", "ours\n", "main goes on")
    return agent


def test_a_branch_lands_by_rebase_and_fast_forward(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt", "a\n", "add a")
    agent.tree.commit("b.txt", "b\n", "add b")
    yard.repo.commit("c.txt", "c\n", "main goes on")

    done = agent.land()

    assert done.verdict.outcome is Outcome.LANDED
    assert done.commit == yard.repo.head() == agent.tree.head()
    assert subjects(yard.repo) == ["first", "main goes on", "add a", "add b"]
    assert yard.repo.status() == agent.tree.status() == ""
    assert fs.lock_holder(yard.paths.merge_lock) is None
    assert leases.read(agent.tree.path) is not None, "the agent lives on in its slot"
    assert not (yard.paths.meta / "merge.intent").exists()


def test_what_landed_is_shown_with_the_agent_and_landing_twice_is_harmless(yard: Yard) -> None:
    agent = yard.worker("fix", status=AgentStatus.WAITING_USER)
    commit = agent.tree.commit()
    assert agent.land().verdict.outcome is Outcome.LANDED
    again = agent.land()
    assert (again.verdict.outcome, again.commit) == (Outcome.ALREADY_LANDED, commit)

    view = views.agent_view(observe.check(agent.context, "fix"))
    assert (view["landedCommit"], view["landedTarget"]) == (commit, "main")
    assert yard.paths.runtime("fix").journal.read_text().count('"landed"') == 1

    with yard.registry.transaction("test") as state:
        state.bury(observe.entomb(agent.context, state.agents["fix"], EndedBy.EXIT))
    assert views.agent_view(observe.check(agent.context, "fix"))["landedCommit"] == commit


def test_x7_uncommitted_work_and_an_unfinished_rebase_have_their_own_statuses(yard: Yard) -> None:
    agent = conflicting(yard)
    agent.tree.write("forgotten.txt")
    before = refs(yard.repo), state_of(agent.tree)

    dirty = agent.land().verdict
    assert (dirty.outcome.exit_status, dirty.dirty) == (5, ("forgotten.txt",))
    assert (dirty.ahead, dirty.behind) == (1, 1)
    assert (refs(yard.repo), state_of(agent.tree)) == before

    (agent.tree.path / "forgotten.txt").unlink()
    conflict = agent.land().verdict
    assert (conflict.outcome.exit_status, conflict.conflicts) == (2, ("src/app.txt",))
    again = agent.land().verdict
    assert again.outcome.exit_status == 6
    assert "rebase --continue" in (again.hint or "")

    agent.tree.write("src/app.txt", "both\n")
    agent.tree.git("add", "--all")
    agent.tree.git("-c", "core.editor=true", "rebase", "--continue")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert (yard.repo.path / "src/app.txt").read_text() == "both\n"
    assert is_linear(yard.repo)


def test_x5_a_conflict_and_a_timeout_leave_the_lock_of_a_live_holder(yard: Yard) -> None:
    yard.configure("finish_lock_timeout = 0.2")
    agent = conflicting(yard)
    other = yard.worker("other")
    other.tree.commit("other.txt")
    with fs.locked(yard.paths.merge_lock, purpose="landing something slow"):
        started = time.monotonic()
        assert agent.land().verdict.outcome.exit_status == 2
        assert time.monotonic() - started < 60, "a conflict does not wait for the lock"
        late = other.land().verdict
        assert late.outcome.exit_status == 3
        assert f"process {os.getpid()}" in late.message
        assert "landing something slow" in late.message
        holder = fs.lock_holder(yard.paths.merge_lock)
        assert holder is not None
        assert holder["pid"] == os.getpid()
        with pytest.raises(SideAgentsError), fs.locked(yard.paths.merge_lock, purpose="test", timeout=0):
            pass
    assert other.land().verdict.outcome is Outcome.LANDED


def test_i6_the_second_of_two_waits_for_the_slow_check_of_the_first(yard: Yard) -> None:
    gate = yard.repo.path.parent / "gate"
    yard.configure(f"finish_check = 'while [ ! -e {gate} ]; do sleep 0.05; done'")
    first, second = yard.worker("first"), yard.worker("second")
    first.tree.commit("first.txt")
    second.tree.commit("second.txt")
    one = first.popen()
    eventually(lambda: fs.lock_holder(yard.paths.merge_lock), deadline=60)
    two = second.popen()
    assert two.stderr is not None
    waiting = two.stderr.readline()
    gate.touch()
    _, first_words = one.communicate(timeout=100)
    two.communicate(timeout=100)

    assert (one.returncode, two.returncode) == (0, 0)
    assert f"waiting for the merge lock, which process {one.pid}" in waiting
    assert "waiting" not in first_words
    assert {"first.txt", "second.txt"} <= set(state_of(yard.repo))
    assert fs.lock_holder(yard.paths.merge_lock) is None
    assert is_linear(yard.repo)


def test_only_a_branch_with_commits_of_its_own_can_land(yard: Yard) -> None:
    agent = yard.worker("fix")
    yard.repo.commit("c.txt")
    assert agent.land().verdict.outcome.exit_status == 10


def test_the_agent_must_be_on_its_own_branch(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit()
    agent.tree.git("checkout", "--quiet", "--detach")
    assert "is on no branch" in agent.land().verdict.message
    agent.tree.git("checkout", "--quiet", "-b", "another")
    assert agent.land().verdict.outcome is Outcome.MISUSE
    agent.tree.git("checkout", "--quiet", agent.branch)
    verdict = agent.land(target=agent.branch).verdict
    assert verdict.outcome is Outcome.MISUSE
    assert "itself" in verdict.message
    assert agent.land(target="nowhere").verdict.outcome is Outcome.MISUSE
    assert agent.land(target="main~0").verdict.outcome is Outcome.MISUSE
    assert agent.land().verdict.outcome is Outcome.LANDED


def test_an_agent_that_has_strayed_lands_nothing(yard: Yard, tmp_path: Path, template_repository: Path) -> None:
    agent, other = yard.worker("fix"), yard.worker("other")
    agent.tree.commit()
    foreign = copy_repository(template_repository, tmp_path / "foreign")
    for place in (foreign.path, yard.repo.path, other.tree.path, tmp_path):
        with pytest.raises(RefusedError, match="is not in the worktree of fix"):
            finish(open_context(place, agent.environment))
    assert yard.repo.git("rev-list", "--count", "main") == "1"


def test_a_slot_that_lost_its_repository_is_not_taken_for_the_one_around_it(yard: Yard) -> None:
    agent = yard.worker("fix", status=AgentStatus.CRASHED)
    around = Repository(yard.repo.path.parent)
    around.git("init", "--quiet", "--template=")
    (agent.tree.path / ".git").unlink()
    with pytest.raises(RefusedError, match="not a worktree of this repository"):
        finish(open_context(yard.repo.path, yard.environment), "fix")
    shutil.rmtree(agent.tree.path)
    with pytest.raises(RefusedError):
        finish(open_context(yard.repo.path, yard.environment), "fix")


def test_commits_that_the_agent_only_inherited_do_not_slip_onto_the_main_branch(yard: Yard) -> None:
    yard.repo.git("checkout", "--quiet", "-b", "feature")
    yard.repo.commit("feature.txt", message="not for main yet")
    agent = yard.worker("fix")
    agent.tree.commit("a.txt", message="agent")

    assert agent.land().verdict.outcome is Outcome.MISUSE
    assert agent.land(target="feature").verdict.outcome is Outcome.LANDED
    assert subjects(yard.repo) == ["first"]
    assert subjects(yard.repo, "feature") == ["first", "not for main yet", "agent"]
    agent.tree.commit("b.txt", message="more")
    assert agent.land(target="main").verdict.outcome is Outcome.LANDED
    assert len(subjects(yard.repo)) == 4


@pytest.mark.parametrize("way", ["rebased", "squashed", "squashed-and-moved-on"])
def test_work_that_landed_as_other_commits_is_known(yard: Yard, way: str) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt", "1\n", "one")
    agent.tree.commit("a.txt", "2\n", "two")
    yard.repo.commit("c.txt")
    if way == "rebased":
        yard.repo.git("cherry-pick", "--quiet", f"main..{agent.branch}", check=False)
        yard.repo.git("cherry-pick", f"{agent.branch}~1", f"{agent.branch}", check=False)
    else:
        yard.repo.git("merge", "--quiet", "--squash", agent.branch)
        yard.repo.git("commit", "--quiet", "-m", "squashed")
    if way == "squashed-and-moved-on":
        yard.repo.commit("a.txt", "3\n", "changed since")
    head = agent.tree.head()

    assert agent.land(dry_run=True).verdict.already_landed
    assert agent.land().verdict.already_landed
    assert agent.tree.head() == head


def test_a_squash_makes_one_commit_and_the_agent_goes_on_from_it(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt", "1\n", "one")
    old = agent.tree.commit("a.txt", "2\n", "two")
    yard.repo.commit("c.txt", message="main goes on")

    done = agent.land(policy=FinishPolicy.SQUASH)

    assert done.verdict.outcome is Outcome.LANDED
    assert subjects(yard.repo) == ["first", "main goes on", "one"]
    body = yard.repo.git("log", "-1", "--format=%B")
    assert "* one" in body
    assert "* two" in body
    assert agent.tree.head() == yard.repo.head() == done.commit
    assert agent.tree.status() == ""
    kept = agent.tree.git("log", "--format=%s", "--glob=refs/side-agents/rescue/*", "--not", "main")
    assert kept.splitlines() == ["two", "one"]
    assert old not in yard.repo.git("rev-list", "main")
    agent.tree.commit("a.txt", "3\n", "three")
    assert agent.land(policy=FinishPolicy.SQUASH).verdict.outcome is Outcome.LANDED
    assert (yard.repo.path / "a.txt").read_text() == "3\n"


@pytest.mark.parametrize("check", ["", "finish_check = 'test -e a.txt && test -e c.txt'"])
def test_a_merge_commit_joins_both_histories(yard: Yard, check: str) -> None:
    yard.configure(f'finish_policy = "merge"\n{check}')
    agent = yard.worker("fix")
    commit = agent.tree.commit("a.txt", message="agent")
    main = yard.repo.commit("c.txt", message="main goes on")

    done = agent.land()

    assert done.verdict.outcome is Outcome.LANDED
    parents = yard.repo.git("log", "-1", "--format=%P").split()
    assert parents[0] == main
    assert commit in yard.repo.git("rev-list", "main").split()
    assert subjects(yard.repo)[-1] == "Merge branch 'side-agent/fix' into main"
    assert {"a.txt", "c.txt"} <= set(state_of(yard.repo))
    assert yard.repo.status() == agent.tree.status() == ""
    assert agent.land().verdict.already_landed


def test_a_merge_that_conflicts_is_left_to_be_resolved_in_the_agents_worktree(yard: Yard) -> None:
    yard.configure('finish_policy = "merge"')
    agent = conflicting(yard)
    assert agent.land(dry_run=True).verdict.outcome is Outcome.CONFLICT
    assert agent.land().verdict.outcome.exit_status == 2
    assert agent.land().verdict.outcome.exit_status == 6
    agent.tree.write("src/app.txt", "both\n")
    agent.tree.git("add", "--all")
    agent.tree.git("commit", "--quiet", "--no-edit")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert (yard.repo.path / "src/app.txt").read_text() == "both\n"


def test_the_check_runs_on_what_lands_and_its_failure_stops_it(yard: Yard) -> None:
    yard.configure("finish_check = 'cat main.txt && echo oh no >&2 && exit 3'")
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    main = yard.repo.commit("main.txt", "came from main\n")

    done = agent.land()

    assert done.verdict.outcome.exit_status == 7
    assert done.output == ("came from main", "oh no")
    assert "exited with 3" in done.verdict.message
    assert yard.repo.head() == main
    assert agent.tree.git("rev-parse", "HEAD~1") == main
    assert fs.lock_holder(yard.paths.merge_lock) is None


def test_a_check_that_hangs_is_ended_and_one_that_commits_is_refused(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    yard.configure("finish_check = 'echo begun; sleep 600'\nfinish_check_timeout = 1")
    done = agent.land()
    assert done.verdict.outcome.exit_status == 7
    assert done.output == ("begun",)
    yard.configure("finish_check = 'git commit --quiet --allow-empty -m sneaked'")
    assert agent.land().verdict.outcome.exit_status == 7
    assert yard.repo.git("rev-list", "--count", "main") == "1"


def test_the_target_may_move_during_the_check_but_not_for_ever(yard: Yard) -> None:
    marks, main = yard.repo.path.parent / "marks", yard.repo.path
    moving = f"echo x >> {main}/src/app.txt && git -C {main} commit --quiet -am moved && touch litter.xml"
    yard.configure(f"finish_tries = 2\nfinish_check = '{moving}'")
    agent = yard.worker("fix")
    agent.tree.commit("a.txt", message="agent")
    verdict = agent.land().verdict
    assert verdict.outcome.exit_status == 9
    assert "moved 2 times" in verdict.message
    assert "agent" not in subjects(yard.repo)

    (agent.tree.path / "litter.xml").unlink()
    yard.configure(f"finish_check = 'test -s {marks} || {{ {moving}; echo x > {marks}; }}'")
    assert agent.land().verdict.outcome is Outcome.LANDED
    assert subjects(yard.repo)[-2:] == ["moved", "agent"]
    assert is_linear(yard.repo)


def test_a_nested_agent_lands_on_its_parents_branch_under_the_parents_lock(yard: Yard) -> None:
    outer = yard.worker("outer")
    outer.tree.commit("outer.txt", message="outer")
    inner = yard.worker("inner", parent=outer)
    inner.tree.commit("inner.txt", message="inner")
    outer.tree.write("outer.txt", "dirty\n")
    with fs.locked(yard.paths.merge_lock, purpose="main's lock is another one"):
        assert inner.land().verdict.outcome is Outcome.LANDED
    assert subjects(outer.tree, outer.branch) == ["first", "outer", "inner"]
    assert outer.tree.status() == " M outer.txt"
    assert yard.repo.git("rev-list", "--count", "main") == "1"
    assert (outer.tree.path / ".pi/side-agents/merge.lock").exists()


def test_a_nested_agent_whose_parent_left_its_branch_forces_nothing(yard: Yard) -> None:
    outer = yard.worker("outer")
    inner = yard.worker("inner", parent=outer)
    inner.tree.commit("inner.txt")
    outer.tree.git("checkout", "--quiet", "-b", "elsewhere")
    before = refs(yard.repo)
    assert inner.land(dry_run=True).verdict.outcome.exit_status == 4
    assert inner.land().verdict.outcome.exit_status == 4
    outer.tree.git("checkout", "--quiet", "--detach")
    assert inner.land().verdict.outcome.exit_status == 4
    shutil.rmtree(outer.tree.path)
    assert inner.land().verdict.outcome.exit_status == 4
    assert refs(yard.repo) == before
    yard.repo.git("worktree", "prune")
    yard.repo.git("branch", "-D", outer.branch)
    assert inner.land().verdict.outcome.exit_status == 4


def test_from_outside_the_agents_own_record_says_where_its_work_goes(yard: Yard) -> None:
    outer = yard.worker("outer")
    inner = yard.worker("inner", parent=outer, status=AgentStatus.WAITING_USER)
    inner.tree.commit("inner.txt", message="inner")
    done = finish(outer.context, "inner")
    assert done.verdict.outcome is Outcome.LANDED
    assert done.verdict.target == outer.branch

    sibling = yard.worker("sibling", status=AgentStatus.WAITING_USER)
    sibling.tree.commit("sibling.txt", message="sibling")
    answer = finish(inner.context, "sibling")
    assert answer.verdict.target == "main", "the caller's parent branch is not the sibling's"
    assert subjects(yard.repo) == ["first", "sibling"]


def test_an_agent_at_work_is_not_landed_from_outside(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit()
    context = open_context(yard.repo.path, yard.environment)
    with pytest.raises(RefusedError, match="is working"):
        finish(context, "fix")
    with pytest.raises(UnknownAgentError):
        finish(context, "fxi")
    with pytest.raises(UsageError, match="not the worktree of an agent"):
        finish(context)
    with pytest.raises(RefusedError, match="is working"):
        finish(open_context(agent.tree.path, yard.environment))


@pytest.mark.parametrize(
    ("waiting_for", "words"),
    [
        (WaitingFor.PERMISSION, "Agent fix asks permission: rm -r build? Nothing was changed."),
        (WaitingFor.QUESTION, "Agent fix asks a question: rm -r build? Nothing was changed."),
    ],
)
def test_an_agent_at_a_dialog_is_not_landed_and_its_question_is_told(
    yard: Yard, waiting_for: WaitingFor, words: str
) -> None:
    agent = yard.worker("fix", status=AgentStatus.WAITING_USER)
    agent.tree.commit()
    registry = open_context(yard.repo.path, yard.environment).registry
    with registry.transaction("ask") as state:
        state.put(replace(state.agents["fix"], waiting_for=waiting_for, waiting_text="rm -r build?"))
    with pytest.raises(RefusedError) as caught:
        finish(open_context(yard.repo.path, yard.environment), "fix")
    assert caught.value.message == words
    assert "side-agents attach fix" in (caught.value.hint or "")


def test_the_slot_of_an_agent_that_ended_is_held_while_its_branch_lands(yard: Yard) -> None:
    mark = yard.repo.path.parent / "seen"
    yard.configure(f"finish_check = 'cp .pi/active.lock {mark}'")
    agent = yard.worker("fix")
    commit = agent.tree.commit()
    with yard.registry.transaction("test") as state:
        state.bury(observe.entomb(agent.context, state.agents["fix"], EndedBy.EXIT))
    leases.release(agent.tree.path, "fix")
    context = open_context(yard.repo.path, yard.environment)

    assert finish(context, "fix").verdict.outcome is Outcome.LANDED
    assert str(os.getpid()) in mark.read_text()
    assert leases.read(agent.tree.path) is None
    stone = context.registry.tombstone("fix")
    assert stone is not None
    assert (stone.landed_commit, stone.landed_target) == (commit, "main")

    leases.take(agent.tree.path, Lease(agent_id="newcomer"))
    with pytest.raises(RefusedError, match="newcomer has it"):
        finish(context, "fix")
    leases.release(agent.tree.path, "newcomer")
    agent.tree.git("checkout", "--quiet", "-b", "side-agent/newcomer")
    with pytest.raises(RefusedError, match="on another branch by now"):
        finish(context, "fix")


def test_a_slot_that_another_record_holds_is_not_touched(yard: Yard) -> None:
    agent = yard.worker("fix", status=AgentStatus.FAILED)
    agent.tree.commit()
    with yard.registry.transaction("test") as state:
        state.put(replace(state.agents["fix"], id="thief", status=AgentStatus.RUNNING))
    with pytest.raises(RefusedError, match="thief has it"):
        finish(open_context(yard.repo.path, yard.environment), "fix")


def test_a_dry_run_changes_nothing_at_all(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    agent.tree.commit("b.txt")
    yard.repo.commit("c.txt")
    yard.repo.write("c.txt", "dirty\n")

    def everything() -> tuple[object, ...]:
        objects = yard.repo.git("count-objects", "-v")
        return refs(yard.repo), objects, state_of(yard.repo), state_of(agent.tree), sorted(yard.paths.meta.rglob("*"))

    before = everything()
    done = agent.land(dry_run=True)
    assert done.verdict.outcome is Outcome.READY
    assert done.verdict.target_state is TargetState.CHECKED_OUT
    assert done.verdict.plan[0].startswith("rebase side-agent/fix onto main")
    assert everything() == before


def test_a_second_landing_by_a_thread_of_the_same_process_waits_too(yard: Yard) -> None:
    agents = [yard.worker(name) for name in ("one", "two")]
    for agent in agents:
        agent.tree.commit(f"{agent.id}.txt")
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda a=agent: outcomes.append(a.land().verdict.outcome)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert outcomes == [Outcome.LANDED, Outcome.LANDED]
    assert is_linear(yard.repo)


def test_options_of_the_caller_win_over_the_settings(yard: Yard) -> None:
    yard.configure('finish_policy = "merge"\nfinish_target = "trunk"')
    yard.repo.git("branch", "trunk")
    agent = yard.worker("fix")
    agent.tree.commit(message="agent")
    assert finish(agent.context, None, FinishOptions(dry_run=True)).verdict.target == "trunk"
    assert agent.land(policy=FinishPolicy.REBASE_FF).verdict.outcome is Outcome.LANDED
    assert subjects(yard.repo, "trunk") == ["first", "agent"]
    assert subjects(yard.repo) == ["first"]


@pytest.mark.parametrize("policy", [FinishPolicy.REBASE_FF, FinishPolicy.SQUASH])
def test_a_commit_that_differs_only_in_blanks_is_not_dropped(yard: Yard, policy: FinishPolicy) -> None:
    yard.repo.commit("src/app.py", "if x:\n    pass\n")
    agent = yard.worker("fix")
    agent.tree.commit("src/app.py", "if x:\n    pass\n    call()\n", "inside")
    agent.tree.commit("a.txt", message="more")
    yard.repo.commit("src/app.py", "if x:\n    pass\ncall()\n", "outside")

    assert agent.land(policy=policy, dry_run=True).verdict.conflicts == ("src/app.py",)
    assert agent.land(policy=policy).verdict.outcome is Outcome.CONFLICT
    agent.tree.git("rebase", "--abort")
    agent.tree.git("reset", "--quiet", "--hard", "HEAD~1")
    assert agent.land(policy=policy).verdict.outcome is Outcome.CONFLICT, "not taken for landed"


def test_an_ignored_file_that_the_target_has_come_to_track_is_not_written_over(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    agent.tree.write("ignored/secret.txt", "mine\n")
    yard.repo.write("ignored/secret.txt", "tracked\n")
    yard.repo.git("add", "--force", "ignored/secret.txt")
    yard.repo.git("commit", "--quiet", "-m", "track it")
    for dry_run in (True, False):
        verdict = agent.land(dry_run=dry_run).verdict
        assert verdict.outcome.exit_status == 5
        assert "ignored/secret.txt" in verdict.message
    assert (agent.tree.path / "ignored/secret.txt").read_text() == "mine\n"
    (agent.tree.path / "ignored/secret.txt").unlink()
    assert agent.land().verdict.outcome is Outcome.LANDED


def test_a_second_finish_in_the_same_worktree_is_turned_away(yard: Yard) -> None:
    agent = yard.worker("fix")
    agent.tree.commit("a.txt")
    own = Git(agent.tree.path).layout().git_dir / "side-agents-finish.lock"
    with fs.locked(own, purpose="landing"):
        assert agent.land().verdict.outcome.exit_status == 3
    assert agent.land().verdict.outcome is Outcome.LANDED
