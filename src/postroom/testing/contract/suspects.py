"""Suspects: messages that may be what kills their consumers."""

from __future__ import annotations

from postroom.model import BlockedBy
from postroom.testing.contract.base import ContractBase


class SuspectContract(ContractBase):
    """What ran out once started or three times unstarted comes one at a time, and started."""

    def stray(self, times: int) -> str:
        """A message that ran out so often before it was started."""
        id = self.put()
        for _ in range(times):
            assert self.claim_ids(1, start=0) == [id]
            self.run_out()
        return id

    def test_one_started_run_out_makes_a_suspect(self) -> None:
        self.put_suspects(1)
        assert self.take().suspect

    def test_three_unstarted_run_outs_make_a_suspect(self) -> None:
        self.stray(3)
        assert self.take().suspect

    def test_two_unstarted_run_outs_do_not(self) -> None:
        self.stray(2)
        assert not self.take().suspect

    def test_the_policy_says_how_many_unstarted_run_outs_do(self) -> None:
        self.declare(suspect_after=1)
        self.stray(1)
        assert self.take().suspect

    def test_a_retried_message_is_no_suspect(self) -> None:
        self.retry(self.put_and_take())
        assert not self.take().suspect

    def test_a_suspect_is_started_whatever_the_claim_asks(self) -> None:
        self.put_suspects(1)
        self.put()
        deliveries = self.claim(2, start=0)
        assert [(delivery.suspect, delivery.started) for delivery in deliveries] == [
            (True, True),
            (False, False),
        ]

    def test_a_claim_gives_at_most_one_suspect(self) -> None:
        self.put_suspects(3)
        assert [delivery.suspect for delivery in self.claim(10)] == [True]

    def test_every_suspect_comes_in_turn(self) -> None:
        suspects = self.put_suspects(3)
        assert [self.take().message.id for _ in range(3)] == suspects

    def test_no_suspect_comes_to_a_consumer_that_takes_none(self) -> None:
        suspect, *_ = self.put_suspects(1)
        ordinary = self.put()
        assert self.claim_ids(suspects=False) == [ordinary]
        assert self.claim_ids() == [suspect]

    def test_a_claim_that_only_met_suspects_says_so(self) -> None:
        self.put_suspects(2)
        claimed = self.ask(5, suspects=False)
        assert (claimed.deliveries, claimed.blocked_by) == ([], BlockedBy.SUSPECT)

    def test_an_empty_queue_is_not_blocked_by_suspects(self) -> None:
        self.ack(self.put_and_take())
        assert self.ask(5, suspects=False).blocked_by is None

    def test_ordinary_messages_behind_suspects_are_reachable(self) -> None:
        self.put_suspects(30)
        ordinary = self.put_many(3)
        assert self.claim_ids(2, suspects=False) == ordinary[:2]
        assert self.claim_ids(2)[1:] == ordinary[2:]

    def test_a_suspect_that_is_acked_is_gone_like_any_other(self) -> None:
        self.put_suspects(1)
        assert self.ack(self.take()) == "ok"
        assert self.stats.depth == 0
