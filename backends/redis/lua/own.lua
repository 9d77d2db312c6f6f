-- ARGV: seen, session, the name that the page before ended with, or nothing
local id, from = ARGV[2], '[' .. ARGV[2] .. ' '
if not ends_at(id) then
  return {str(top), 'gone', {}}
end
if ARGV[3] ~= '' then
  from = '(' .. id .. ' ' .. ARGV[3]
end
local page = call('ZRANGE', OWN, from, '(' .. id .. '!', 'BYLEX', 'LIMIT', 0, 250)
local out, last = {}, ''
for _, member in ipairs(page) do
  last = string.sub(member, #id + 2)
  local value = call('HGET', LEASE, last)
  if value and select(3, parse(value)) == id then
    out[#out + 1] = row(last, value)
  end
end
return {str(top), #page == 250 and '>' .. last or '', out}
