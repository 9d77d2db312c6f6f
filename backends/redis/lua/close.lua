-- ARGV: seen, session, incarnation. The session is over with the first call; the caller asks again
-- until no record is left.
local id, over = ARGV[2], true
if call('ZSCORE', ENDS, id) and incarnation_of(id) == ARGV[3] then
  over = select(2, finish(id, 200))
end
sweep(SWEEP)
return {str(top), over and 'over' or 'more', {}}
