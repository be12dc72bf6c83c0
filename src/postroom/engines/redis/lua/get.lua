-- get: these messages and where they stand.
--
-- ARGV [3…] ids
-- Returns how many ids it got through (4 MB but at least one), and what `show` says of those that exist;
--         false for an unknown queue

if not open() then
  return false
end
local answer, size, asked = {}, 0, 0
for at = 3, #ARGV do
  local place_of, score = visible(ARGV[at])
  if place_of then
    if asked > 0 and size + call('HSTRLEN', BODY, ARGV[at]) > 4194304 then
      break
    end
    size = size + show(answer, ARGV[at], place_of, score)
  end
  asked = asked + 1
end
return { asked, answer }
