-- ring: wake who waits for a queue.
--
-- ARGV [3] how many; [4] '' to wake them in any case; 'left' when a waiter has left: then only if there is
--      something for others to claim or to watch; 'unused' when it left a ring that it had no use for;
--      [5…] the waiters that left
-- Returns rings

local ROW = 20
if not open() then
  return ARGV[4] == '' and tonumber(ARGV[3]) or 0 -- whoever asked may ring its own
end
if #ARGV > 4 and seats ~= '' then
  for number = 1, 3 do
    local at = ROW * number - ROW
    for left = 5, #ARGV do
      if string.sub(seats, at + 1, at + 12) == ARGV[left] then
        seats = string.sub(seats, 1, at) .. string.rep('\0', ROW) .. string.sub(seats, at + ROW + 1)
      end
    end
  end
  set('seats', seats)
end
if ARGV[4] == '' or (ARGV[4] == 'unused' and claimable() > 0) or call('ZCARD', DUE) > 0 then
  rings = tonumber(ARGV[3])
end
save()
return ring()
