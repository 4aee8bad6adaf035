"""The scripts over one run in Redis: its row, events, calls and parts, which stand in one group (CHAT-116).

The row is a hash, the events a Stream whose ids are ``<position>-0``, the calls a hash of ``<number> <mark>``, or of
nothing once the result is known, the parts a hash of ``<position> <data>`` by their number. ARGV[1] of every script is
added to the time of Redis, in milliseconds. With a replica as ARGV[2] a script changes a run of this process only.
"""

from wicketgate.storage.redis.scripts import Script

_TIME = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[1]
local row, events, calls, parts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local function live(ms)
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ms) end
end
"""

_REFUSAL = """
local found = redis.call('HMGET', row, 'replica', 'until')
if not found[1] then return -2 end
if found[1] ~= ARGV[2] or found[2] then return -1 end
"""
"""-2: there is no such run; -1: it has ended, or is another's."""

_STATE = """
local function state()
  local has = redis.call('HMGET', row, 'run', 'digest', 'replica', 'first', 'last', 'lost', 'until', 'lease')
  local stop = has[7] and tonumber(has[7])
  if not has[1] or (stop and stop <= now) then return nil end
  local lapsed = not stop and tonumber(has[8]) <= now
  return {has[1], has[2], has[3], tonumber(has[4]), tonumber(has[5]), tonumber(has[6]), stop and 1 or 0,
    lapsed and 1 or 0}
end
"""

_BEGIN = """
local function begin(run, digest, owner, replica, lease, last)
  redis.call('DEL', row, events, calls, parts)
  redis.call('HSET', row, 'run', run, 'digest', digest, 'owner', owner, 'replica', replica, 'lease', now + lease,
    'first', last + 1, 'last', last, 'held', 0, 'lost', 0, 'attended', 0)
end
"""

_ADD = """
local function add(from, count, most)
  local has = redis.call('HMGET', row, 'first', 'last', 'held')
  local first, last, held = tonumber(has[1]), tonumber(has[2]), tonumber(has[3])
  for at = from, from + 2 * count - 2, 2 do
    local position = tonumber(ARGV[at])
    if position > last then
      -- Behind a gap nothing can be read in order: the journal begins there.
      if position ~= last + 1 then
        redis.call('DEL', events)
        first, held = position, 0
      end
      redis.call('XADD', events, ARGV[at] .. '-0', 'e', ARGV[at + 1])
      last, held = position, held + #ARGV[at + 1]
    end
  end
  while held > most and first < last do
    local oldest = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
    if not oldest then break end
    redis.call('XDEL', events, oldest[1])
    first, held = first + 1, held - #oldest[2][2]
  end
  redis.call('HSET', row, 'first', first, 'last', last, 'held', held)
  return held
end
"""

_LEFT = """
-- The last position, its event or nothing, and the calls without a result in the order of their claims.
local function left()
  local at = redis.call('HGET', row, 'last')
  local last = redis.call('XRANGE', events, at .. '-0', at .. '-0')[1]
  local all, numbers, open = redis.call('HGETALL', calls), {}, {}
  for index = 1, #all, 2 do
    local number = tonumber(all[index + 1]:match('^%d+'))
    if number then
      numbers[all[index]] = number
      open[#open + 1] = all[index]
    end
  end
  table.sort(open, function(one, other) return numbers[one] < numbers[other] end)
  return {tonumber(at), last and last[2][2] or '', open}
end
"""

CLAIM = Script(f"""{_TIME}{_STATE}{_BEGIN}
-- ARGV: replica, run, digest, owner, lease and life in ms, the first part. Returns nothing if it was taken, or the
-- state of the run that has the name. One of this process that has nothing yet is left of a claim whose answer was
-- lost.
local is = state()
if is and (is[7] == 1 or is[3] ~= ARGV[2] or is[5] > 0 or is[6] == 1) then return is end
begin(ARGV[3], ARGV[4], ARGV[5], ARGV[2], ARGV[6], 0)
if ARGV[8] ~= '' then redis.call('HSET', parts, 0, '0 ' .. ARGV[8]) end
live(ARGV[7])
return false
""")

UNCLAIM = Script(f"""{_TIME}
-- ARGV: replica, run. Gives a name back under which nothing happened.
local is = redis.call('HMGET', row, 'replica', 'run', 'last', 'lost')
if is[1] == ARGV[2] and is[2] == ARGV[3] and is[3] == '0' and is[4] == '0' then
  redis.call('DEL', row, events, calls, parts)
end
""")

REVIVE = Script(f"""{_TIME}{_BEGIN}
-- ARGV: replica, run, digest, owner, lease and life in ms, the last position, calls. Returns 1 if Redis had lost it.
if redis.call('EXISTS', row) == 1 then return 0 end
begin(ARGV[3], ARGV[4], ARGV[5], ARGV[2], ARGV[6], tonumber(ARGV[8]))
for at = 9, #ARGV do redis.call('HSET', calls, ARGV[at], (at - 8) .. ' -') end
live(ARGV[7])
return 1
""")

READ = Script(f"""{_TIME}{_STATE}
-- ARGV: the position to read behind, or nothing; bytes to read at most. Returns nothing, or the state and the events:
-- id, event and so on.
local is = state()
if not is then return false end
local entries, taken, after = {{}}, 0, ARGV[2]
while after ~= '' and taken < tonumber(ARGV[3]) do
  local page = redis.call('XRANGE', events, '(' .. after .. '-0', '+', 'COUNT', 32)
  for _, entry in ipairs(page) do
    if taken >= tonumber(ARGV[3]) then break end
    after = entry[1]:match('^%d+')
    entries[#entries + 1], entries[#entries + 2] = after, entry[2][2]
    taken = taken + #entry[2][2]
  end
  if #page < 32 then break end
end
return {{is, entries}}
""")

APPEND = Script(f"""{_TIME}{_ADD}{_REFUSAL}
-- ARGV: replica, lease and life in ms, bytes of a run, how many events, how many parts; position and event of each;
-- number, position and data of each part; calls with a result. Returns the bytes held.
local count, last = tonumber(ARGV[6]), 8 + 2 * ARGV[6] + 3 * ARGV[7]
local held = add(8, count, tonumber(ARGV[5]))
for at = 8 + 2 * count, last - 1, 3 do
  -- Behind a gap, which a Redis leaves that has lost some, parts say nothing.
  if tonumber(ARGV[at]) == redis.call('HLEN', parts) then
    redis.call('HSET', parts, ARGV[at], ARGV[at + 1] .. ' ' .. ARGV[at + 2])
  end
end
for at = last, #ARGV do redis.call('HSET', calls, ARGV[at], '') end
redis.call('HSET', row, 'lease', now + ARGV[3])
live(ARGV[4])
return held
""")

CLAIM_CALL = Script(f"""{_TIME}{_REFUSAL}
-- ARGV: replica, call, mark, life in ms. Returns 1 or 0. The mark tells a step that redis-py repeats from another
-- claim; it is written again, because WAIT speaks of what its own connection has written.
local has = redis.call('HGET', calls, ARGV[3])
local number = has and has:match('^(%d+) ' .. ARGV[4] .. '$')
if has and not number then return 0 end
redis.call('HSET', calls, ARGV[3], (number or redis.call('HLEN', calls) + 1) .. ' ' .. ARGV[4])
live(ARGV[5])
return 1
""")

RENEW = Script(f"""{_TIME}{_REFUSAL}
-- ARGV: replica, lease and life in ms.
redis.call('HSET', row, 'lease', now + ARGV[3])
live(ARGV[4])
return 1
""")

RELEASE = Script(f"""{_TIME}{_REFUSAL}
-- ARGV: replica. The run is nobody's from now on.
redis.call('HSET', row, 'replica', '', 'lease', now)
return 1
""")

TAKE = Script(f"""{_TIME}{_LEFT}
-- ARGV: replica, lease and life in ms. Makes a run whose lease has lapsed one of this process. Returns nothing if it is
-- not to be had, or run, digest, owner, for how many ms the lease has lapsed, what is left, and the parts.
local is = redis.call('HMGET', row, 'run', 'digest', 'owner', 'lease', 'until')
if not is[1] or is[5] or tonumber(is[4]) > now then return false end
-- A row that is damaged fails before anything is written.
local found = {{is[1], is[2], is[3], now - tonumber(is[4]), left(), redis.call('HGETALL', parts)}}
redis.call('HSET', row, 'replica', ARGV[2], 'lease', now + ARGV[3], 'lost', 1)
live(ARGV[4])
return found
""")

LOOK = Script(f"""{_TIME}{_LEFT}{_REFUSAL}
-- ARGV: replica. Returns what is left of a run of this process.
return left()
""")

END = Script(f"""{_TIME}{_ADD}{_REFUSAL}
-- ARGV: replica, times to keep in ms, if it was not and if it was lost, margin in ms, bytes of a run, lost, how many
-- events, position and event of each. Returns the bytes held, and for how many ms it is kept.
local held = add(9, tonumber(ARGV[8]), tonumber(ARGV[6]))
if ARGV[7] == '1' then redis.call('HSET', row, 'lost', 1) end
local keep = redis.call('HGET', row, 'lost') == '1' and ARGV[4] or ARGV[3]
redis.call('HSET', row, 'until', now + keep)
redis.call('DEL', parts)
live(keep + ARGV[5])
return {{held, tonumber(keep)}}
""")

STRIP = Script(f"""{_TIME}
-- Drops the events of an ended run, but the last.
if redis.call('HEXISTS', row, 'until') == 0 then return 0 end
redis.call('XTRIM', events, 'MAXLEN', 1)
local last = redis.call('XRANGE', events, '-', '+')[1]
redis.call('HSET', row, 'first', redis.call('HGET', row, 'last'), 'held', last and #last[2][2] or 0)
return 1
""")

ATTEND = Script(f"""{_TIME}
-- ARGV: for how many ms.
if redis.call('EXISTS', row) == 1 then redis.call('HSET', row, 'attended', now + ARGV[2]) end
""")

ATTENDED = Script(f"""{_TIME}
-- Returns for how many ms from now; nothing if nobody has said so.
local attended = tonumber(redis.call('HGET', row, 'attended') or 0)
return attended > 0 and attended - now
""")
