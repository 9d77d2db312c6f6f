-- ARGV: seen, a pattern, a cursor of HSCAN or nothing. What is over is removed: a watch that is
-- begun by these pages then tells of nothing as gone that it has not told of.
local page = call('HSCAN', LEASE, ARGV[3] == '' and '0' or ARGV[3], 'MATCH', ARGV[2], 'COUNT', 250)
local out = {}
for i = 1, #page[2], 2 do
  out[#out + 1] = look(page[2][i], page[2][i + 1])
end
return {str(top), page[1] == '0' and '' or '>' .. page[1], out}
