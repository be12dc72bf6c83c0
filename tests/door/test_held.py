"""What a worker holds is counted, whatever comes and goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from postroom.worker.held import Held

QUEUES = "abc"


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "take", "give up", "put back", "keep"]), st.sampled_from(QUEUES))
    )
)
def test_the_count_is_the_sum_of_the_lines_and_each_is_in_order(steps: list[tuple[str, str]]) -> None:
    held, lines = Held(QUEUES), {queue: list[object]() for queue in QUEUES}
    for number, (step, queue) in enumerate(steps):
        line = lines[queue]
        if step == "add":
            held.add(queue, number)  # type: ignore[arg-type]  # any object will do
            line.append(number)
        elif step == "take" and line:
            assert held.take(queue) == line.pop(0)
        elif step == "give up" and line:
            assert held.give_up(queue) == line.pop()
        elif step == "put back" and line:
            first, second = held.take(queue), number
            held.put_back(queue, [first, second])  # type: ignore[list-item]  # the same
            line.insert(1, number)
        elif step == "keep":
            beyond = max(0, sum(map(len, lines.values())) - 2)
            last = [each for queue in QUEUES for each in reversed(lines[queue])][:beyond]
            assert list(held.give_up_beyond(2)) == last
            lines = {queue: [each for each in line if each not in last] for queue, line in lines.items()}
        assert len(held) == sum(map(len, lines.values()))
        assert {each: list(held.of(each)) for each in QUEUES} == lines
