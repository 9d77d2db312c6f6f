-- ARGV: seen. Of a Store that watches: what is over is swept, and the answer is in how many µs the
-- next session ends; nothing if there is none.
sweep(100)
local first = call('ZRANGE', ENDS, 0, 0, 'WITHSCORES')
return {str(top), first[2] and str(math.max(0, first[2] - now)) or '', {}}
