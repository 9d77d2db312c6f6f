-- ARGV: seen, then names
local out = {}
for i = 2, #ARGV do
  local value = call('HGET', LEASE, ARGV[i])
  if value then
    out[#out + 1] = row(ARGV[i], value)
  end
end
return {str(top), '', out}
