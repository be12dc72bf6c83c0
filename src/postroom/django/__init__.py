"""Postroom in a Django project: `INSTALLED_APPS = [..., "postroom.django"]`.

    python manage.py dead_letters dlq_fast
    python manage.py replay_task ID --queue fast_default

The store is the one that is configured everywhere else; `POSTROOM_URL` of the settings beats that.
"""
