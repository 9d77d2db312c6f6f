-- ARGV: seen, session, incarnation, 1 if the call was begun before. The session is over with the
-- first request; the caller asks again until no record is left.
local id, over = ARGV[2], true
local reopened = ARGV[4] == '1' and ends_at(id)
if call('ZSCORE', ENDS, id) and incarnation_of(id) == ARGV[3] and not reopened then
  over = select(2, finish(id, 200))
end
sweep(SWEEP)
return {str(top), over and 'over' or 'more', {}}
