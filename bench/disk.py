"""What waiting messages take on the disk, bodies of 200 bytes included, once the room is closed."""

from __future__ import annotations

from bench.measure import Case
from bench.stage import Stage, fill, queue_at


def cases(stage: Stage) -> list[Case]:
    if "{file}" not in stage.kind.url:
        return []
    count = stage.size(50_000, 5_000)

    def trial() -> list[float]:
        with stage.new_folder() as folder:
            with queue_at(stage.kind.url.format(file=folder / "room.db")) as queue:
                fill(queue, count)
            return [sum(file.stat().st_size for file in folder.iterdir()) / count]

    return [Case("disk", (stage.figure("disk for a waiting message", "bytes"),), trial)]
