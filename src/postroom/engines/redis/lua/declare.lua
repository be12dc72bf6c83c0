-- declare: create the queue or give it this policy; what is already in it stays.
--
-- ARGV [3] the policy's text, [4] its numbers
-- Returns rings

if not open() then
  begin(ARGV[3], ARGV[4])
else
  reached()
  local before, after = policy, cmsgpack.unpack(ARGV[4])
  if before.aging ~= after.aging and waiting() + call('ZCARD', LEASE) > 0 then
    return refuse('conflict', 'aging cannot change while messages wait or are processing')
  end
  if before.rate_count ~= after.rate_count or before.rate_per ~= after.rate_per then
    set('bucket', after.rate_full or 0)
    set('bucket_at', now)
  end
  set('policy', ARGV[3])
  set('numbers', ARGV[4])
  -- What the old policy held back may be claimable now.
  unblock()
end
return finish_step()
