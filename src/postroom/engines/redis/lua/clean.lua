-- clean: remove one portion of what a purge left behind.
--
-- Returns 1 if there may be more, else 0

return clean() and 1 or 0
