-- pause: stop claims. Puts, settles, promotion and reclaim go on.
--
-- ARGV [3] text and [4] numbers of the policy of a new queue, [5] the reason
-- Returns 0

if not open() then
  begin(ARGV[3], ARGV[4])
else
  reached()
end
set('paused', '1')
set('reason', ARGV[5])
save()
tell('pause', {}, 0, { 's.reason', ARGV[5] })
return 0
