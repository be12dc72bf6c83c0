"""Sends the tasks of one order: urgent and not, one for later, one that kills its worker."""

from __future__ import annotations

import time

from shop import export, pack, remind

for parcel, priority in (("books", 0), ("records", 5), ("medicine", 9), ("more books", 0)):
    pack.apply_async([parcel], priority=priority)  # higher is more urgent
remind.apply_async(["Ada", time.time()], countdown=4)
export.apply_async(["the year"], countdown=6)
print("sent: four parcels, a reminder in 4 s, an export in 6 s")
