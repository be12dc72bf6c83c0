-- resume: allow claims again, and ring.
--
-- Returns rings; false for an unknown queue

if not open() then
  return false
end
reached()
if paused or pause_over then
  set('paused', '0')
  set('reason', '')
  tell('resume', {}, 0)
  unblock()
end
return finish_step()
