"""What the marketplace does: a handler for every queue of the matrix.

The outside world is pretended: a body may say what it does to this message (`fate`, see `outside`).
"""

from __future__ import annotations

import postroom
from examples.marketplace import payouts
from examples.marketplace.outside import Task, meet_fate
from examples.marketplace.payouts import room

handlers = postroom.Handlers()
#: While the payment provider is down nobody takes payouts.
handlers.tie(payouts.QUEUE, payouts.provider)


# ---- fast -----------------------------------------------------------------------------------------
# Two kinds of tasks and no handler for anything else: a message cannot name code of ours by itself.


@handlers.handle("fast_default", kind="update_metrics")
def update_metrics(delivery: postroom.Delivery) -> None:
    meet_fate(delivery)


@handlers.handle("fast_default", kind="send_webhook")
def send_webhook(delivery: postroom.Delivery) -> None:
    meet_fate(delivery)


@handlers.handle("notifications_email")
def send_email(delivery: postroom.Delivery) -> None:
    if "template" not in delivery.body:
        raise postroom.Bury("an email without a template is never going to work")
    meet_fate(delivery)


@handlers.handle("chat_events")
def on_chat_event(delivery: postroom.Delivery) -> None:
    meet_fate(delivery)


# ---- heavy ----------------------------------------------------------------------------------------


@handlers.handle("heavy_settlements")
def settle_escrow(delivery: postroom.Delivery) -> None:
    meet_fate(delivery, seconds=0.05)


@handlers.handle("heavy_payouts")
def pay_out(delivery: postroom.Delivery) -> None:
    if "invoice" in delivery.body:
        payouts.pay(delivery)
    else:
        meet_fate(delivery, seconds=0.05)


# ---- media ----------------------------------------------------------------------------------------


@handlers.handle("media_processing")
def make_thumbnail(delivery: postroom.Delivery) -> None:
    meet_fate(delivery, seconds=0.02)


# ---- beat -----------------------------------------------------------------------------------------


@handlers.handle("beat")
def on_tick(delivery: postroom.Delivery) -> None:
    """Put what this tick is for into its queue; under the tick's own id, so a repeated tick puts it once."""
    call = delivery.body
    # What the schedule puts is a call of a task, so that Celery's workers can do it, too.
    tick = call[0][0] if isinstance(call, list) else call
    meet_fate(Task(delivery.queue, delivery.id, delivery.attempt, tick))
    for queue, kind in tick["puts"]:
        room().queue(queue).put({"fate": "well"}, kind=kind, id=delivery.id)
