-- What several scripts must know alike.

-- Time in a message's order begins at this instant, with so many ticks a millisecond.
local EPOCH, TICKS = 1735689600000, 32
-- That a queue was called is noted once in this part of its lease.
local FRESH = 16
-- The newest form of what is stored that this release can read, and the one in which it writes messages;
-- what stands before the body of a plain one has this length.
local FORMAT_KNOWN, FORMAT, FIXED = 1, 1, 13
-- Once in so many puts, what need not be remembered any longer is let go.
local FORGET_EVERY = 64
