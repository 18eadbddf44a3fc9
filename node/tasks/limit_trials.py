"""Trials of the limits: what would become of a task that another node introduced here."""

from __future__ import annotations

from node.execution.catalog import Capabilities
from node.execution.targets import ForeignTargets
from node.model.errors import FieldFault, InvalidDocument
from node.model.host_limits.rules import LimitRefusal, Rule
from node.model.host_limits.standing import LimitStanding
from node.model.wire.campaigns import DEFAULT
from node.model.wire.host_limits import LimitTrial, LimitTrialRequest, TaskLimit
from node.peers.directory import Directory
from node.sharing.host_limits import LimitKeeper
from node.store.nodes import KnownNode
from node.tasks.drafting import TaskDrafter
from node.tasks.user_limits import UserLimits

_OF_USER = "token:"
"""The beginning of a word that stands for a user, by the label of their token."""


class LimitTrials:
    """Tries tasks against the limits; nothing is stored, and no node is asked."""

    def __init__(
        self,
        keeper: LimitKeeper,
        drafter: TaskDrafter,
        directory: Directory,
        capabilities: Capabilities,
        user_limits: UserLimits,
        targets: ForeignTargets,
    ) -> None:
        """``keeper`` has the limits, ``drafter`` checks the documents of tasks.

        ``targets`` are those that no limits admit.
        """
        self._targets = targets
        self._user_limits = user_limits
        self._keeper = keeper
        self._drafter = drafter
        self._directory = directory
        self._capabilities = capabilities

    async def run(self, request: LimitTrialRequest) -> LimitTrial:
        """Return the verdict of the limits on a task that a node would lead, and its quotas left.

        :raises InvalidDocument: a field is wrong, or this host would take no part in the task.
        """
        if request.as_.startswith(_OF_USER):
            return await self._try_as_user(request)
        lead = self._find_lead(request.as_)
        try:
            task = self._drafter.draft(request.task).task
        except InvalidDocument as error:
            faults = [FieldFault(f"/task{it.pointer}", it.detail) for it in error.faults]
            raise InvalidDocument(faults) from None
        places = [participant.node for participant in task.terms.participants]
        itself = self._directory.self.identity
        if itself not in places:
            fault = "does not name this host, so that its limits have nothing to say; name it"
            raise InvalidDocument([FieldFault("/task/test/spec", fault)])
        test = self._capabilities.test(task.terms.test)
        spec = self._capabilities.spec(test, task.terms.spec)
        place = places.index(itself)
        judged = self._keeper.judge_terms(lead.identity, task.terms, place, test, spec)
        refusal = judged.refusal
        if refusal is None:
            terms = task.terms
            durations = self._capabilities.durations(terms.test, spec, terms.tools)
            tools = [self._capabilities.tools[name] for name in durations]
            introduced = task.introduction(place)
            never = self._targets.refusal(lead.identity, test, spec, tools, introduced)
            refusal = None if never is None else LimitRefusal(None, "/test/spec", never)
        return LimitTrial(
            allowed=refusal is None,
            rule=None if judged.rule is None or refusal else judged.rule.name,
            refusal=None if refusal is None else TaskLimit(**vars(refusal)),
            counted_priority=self._keeper.counted_priority(
                task.terms.priority, judged.standing.rule
            ),
            left=tuple(await self._keeper.quotas_left(lead.identity, judged.standing)),
        )

    async def _try_as_user(self, request: LimitTrialRequest) -> LimitTrial:
        """Return the verdict of the limits on a task that the user with a token would create."""
        label = request.as_.removeprefix(_OF_USER)
        user = await self._user_limits.user(label, request.task.campaign or DEFAULT)
        try:
            verdict = await self._user_limits.judge(user, request.task)
        except InvalidDocument as error:
            faults = [FieldFault(f"/task{it.pointer}", it.detail) for it in error.faults]
            raise InvalidDocument(faults) from None
        refused = isinstance(verdict, LimitRefusal)
        rule = verdict.name if isinstance(verdict, Rule) else None
        return LimitTrial(
            allowed=not refused,
            rule=rule,
            refusal=TaskLimit(**vars(verdict)) if refused else None,
            counted_priority=request.task.priority,
            left=tuple(await self._keeper.quotas_left(user.token or "", LimitStanding(rule))),
        )

    def _find_lead(self, word: str) -> KnownNode:
        """Return the node that this name, address, or key stands for.

        :raises InvalidDocument: there is none, or it is this node.
        """
        known = self._directory.find_or_key(word)
        if known is None:
            fault = f"no node {word} is known here; see parley node list"
            raise InvalidDocument([FieldFault("/as", fault)])
        if known.is_self:
            fault = "is this node, which its own limits do not bind; name another one"
            raise InvalidDocument([FieldFault("/as", fault)])
        return known
