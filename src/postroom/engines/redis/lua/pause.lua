-- pause: stop claims, for ever or for a while. Puts, settles, promotion and reclaim go on.
--
-- ARGV [3] text and [4] numbers of the policy of a new queue, [5] the reason, [6] for how long (ms), or ''
-- Returns rings

if not open() then
  begin(ARGV[3], ARGV[4])
else
  reached()
end
local reason, info, span = ARGV[5], { 's.reason', ARGV[5] }, tonumber(ARGV[6])
if span then
  -- Three should know of the end: one to wake for it, two to stand by.
  alarms = 3
  local til = string.format('%.0f', now + span)
  reason, info[3], info[4] = reason .. '\31until ' .. til, 'i.until', til
end
set('paused', '1')
set('reason', reason)
save() -- first: it also begins the log of a new queue
tell('pause', {}, 0, info)
return finish_step()
