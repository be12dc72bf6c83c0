-- purge: forget all that waits, however much it is; what is processing or dead stays.
--
-- Returns how many, and whether something is left to be cleaned; -1 when the trash of an earlier purge
-- must be cleaned first; false for an unknown queue

if not open() then
  return false
end
if call('EXISTS', TRASH_READY, TRASH_SUSPECTS, TRASH_DUE) > 0 then
  return { -1, 1 }
end
reached()

local function throw_away(key, trash)
  if call('EXISTS', key) == 1 then
    call('RENAME', key, trash)
  end
end

local number, rest = waiting(), 0
if number > 0 then
  if call('EXISTS', LEASE, DEAD, DONE) == 0 then
    -- Nothing but what waits has a body: all of it goes at once.
    call('UNLINK', READY, SUSPECTS, DUE, BODY, DELIVERY, NOTES, UNIQUE)
    set('big', 0)
  else
    throw_away(READY, TRASH_READY)
    throw_away(SUSPECTS, TRASH_SUSPECTS)
    throw_away(DUE, TRASH_DUE)
    rest = 1
  end
  call('UNLINK', EXPIRES, WAKE)
  count('purged', number)
  tell('purge', {}, number)
end
save()
return { number, rest }
