-- sweep: do what time demands without claiming: reclaim, promote, expire, evict, forget, clean up.
--
-- ARGV [3] the limit of each kind of work, [4] who asked for it
-- Returns rings, reclaimed, dead, promoted, expired, evicted, 1 if there is more, next_wake;
--         false for an unknown queue

if not open() then
  return false
end
reached()
end_pause()

local limit = tonumber(ARGV[3])
local reclaimed, dead = reclaim(limit, ARGV[4])
local promoted, expired = promote(limit), expire(limit)
local beyond = policy.dead_limit and call('ZCARD', DEAD) - policy.dead_limit or 0
if beyond > 0 then
  evict(min(beyond, limit), now)
end
if policy.dead_retention then
  evict(limit, now - policy.dead_retention)
end
local forgotten = forget(limit)
local evicted = counts.evicted or 0
local full = max(reclaimed, promoted, expired, evicted, forgotten) >= limit
if clean() then
  full = true
end
local wake = full and 0 or next_wake(first_due() or now + policy.lease, first_score(EXPIRES), pause_end)
return { finish_step(), reclaimed, dead, promoted, expired, evicted, full and 1 or 0, wake }
