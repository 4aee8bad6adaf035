"""The scripts of the store in Redis. What they mean is in ``storage.core``; a property test compares the two.

All keys begin with KEYS[1], which has a hash tag, so they are in one slot of a Cluster. *k* is ``kind:key``:

- ``r:k`` a row, a hash: v version, s size, t term, e its end in ms, n0 and n1 the ends of its logs, o owner, h holder,
  w the step that wrote it last, and d data or l the name of its value. ``l0:k`` and ``l1:k`` are its logs, Streams
  where position 7 has the id 7-1. ``v:name`` is a value that is too large for Lua.
- ``marks`` sorts processes by the end of their marks in ms, 0 without one. ``h:process`` has the rows that a process
  holds by their end, ``q:process`` the places that it set, ``p:kind:actor`` the places of each process.
- ``w:key`` a window: s its start, b the events of the bucket before, p the ms in which they came, n the events of this
  one, l when the last of them came in it.
- ``i:kind:`` the index of a kind: z sizes and owners by k and the sum of sizes as ``#``, x rows by their end, o owners
  by bytes, ``u:owner`` rows by their last write in microseconds. Rows with nothing to give are HELD later.
"""

from wicketgate.storage.redis.lanes import Script
from wicketgate.storage.store import STRIPPED_BYTES

HELD = 4_000_000_000_000_000

_HEAD = """
local P, t, call = KEYS[1], redis.call('TIME'), redis.call
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
local function number(text) return tonumber(text or 0) or error('damaged: not a number') end
local function is_ended(process)
  local till = process ~= '' and call('ZSCORE', P .. 'marks', process)
  return not till or number(till) <= now
end
"""

# ARGV: the step in JSON, then data and entries, which the step names by their place in ARGV.
# Returns 1 and what each operation returns; 0 and the operation in conflict; -1 if the owner is full, -2 if all are.
STEP = Script(
    _HEAD
    + f"local HELD, STRIPPED, AT_ONCE = {HELD}, {STRIPPED_BYTES}, 100"
    + """
local asked, heads, totals, tidied, turn = cjson.decode(ARGV[1]), {}, {}, {}, us
local ops, fence = asked.ops, asked.fence
local function unlink(k, f)
  call('UNLINK', P .. 'r:' .. k, P .. 'l0:' .. k, P .. 'l1:' .. k, P .. (f.l and 'v:' .. f.l or 'r:' .. k))
  if f.h then call('ZREM', P .. 'h:' .. f.h, k) end
  heads[k] = {v = 0, s = 0, t = 0, [0] = 0, 0}
end
local function head(k)
  if heads[k] then return heads[k] end
  local a = call('HMGET', P .. 'r:' .. k, 'v', 's', 't', 'e', 'n0', 'n1', 'o', 'h', 'l', 'w')
  if not a[1] ~= not a[2] or not a[1] ~= not a[7] then error('damaged: fields are missing') end
  local f = {v = number(a[1]), s = number(a[2]), t = number(a[3]), e = a[4] and number(a[4]), [0] = number(a[5]),
    number(a[6]), o = a[7] or nil, h = a[8] or nil, l = a[9] or nil, w = a[10]}
  heads[k] = f
  if f.e and f.e <= now then unlink(k, f) end
  return heads[k]
end
-- The index. Its totals are written once, at the end.
local function resize(x, owner, more)
  totals[x] = (totals[x] or number(call('HGET', x .. 'z', '#'))) + more
  return number(call('ZINCRBY', x .. 'o', more, owner))
end
local function forget(x, k)
  local a = call('HMGET', x .. 'z', k, '#')
  local size, owner = (a[1] or ''):match('^(%d+) (.*)$')
  totals[x] = totals[x] or number(a[2])
  if not size then return end
  call('HDEL', x .. 'z', k)
  call('ZREM', x .. 'x', k)
  call('ZREM', x .. 'u:' .. owner, k)
  if resize(x, owner, -size) <= 0 and call('EXISTS', x .. 'u:' .. owner) == 0 then call('ZREM', x .. 'o', owner) end
end
local function answer(...)
  for x, total in pairs(totals) do call('HSET', x .. 'z', '#', total) end
  return {...}
end
local function evict(op, owner)
  local u = op.x .. 'u:' .. owner
  local found, at = call('ZRANGE', u, 0, #ops, 'WITHSCORES'), 1
  while found[at] and heads[found[at]] do at = at + 2 end  -- a row of this step stays
  local k, written = found[at], number(found[at + 1])
  if not k or written >= HELD then return false end
  if op.gives == 'row' then
    unlink(k, {l = call('HGET', P .. 'r:' .. k, 'l') or nil})
    forget(op.x, k)
  else
    local size = call('HGET', op.x .. 'z', k):match('^%d+')
    call('UNLINK', P .. 'l0:' .. k, P .. 'l1:' .. k)
    if call('EXISTS', P .. 'r:' .. k) == 1 then call('HSET', P .. 'r:' .. k, 's', STRIPPED, 'n0', -1, 'n1', -1) end
    call('HSET', op.x .. 'z', k, STRIPPED .. ' ' .. owner)
    call('ZADD', u, written + HELD, k)
    resize(op.x, owner, STRIPPED - size)
  end
  return true
end
local function evict_largest(op, own)
  for rank = 0, call('ZCARD', op.x .. 'o') do
    local who = call('ZREVRANGE', op.x .. 'o', rank, rank, 'WITHSCORES')
    if own and own >= number(who[2]) then
      own = nil
      if evict(op, op.o) then return true end
    end
    if who[1] and who[1] ~= op.o and evict(op, who[1]) then return true end
  end
end
local function make_room(op, f)
  local x, b, more, new = op.x, op.bounds, op.s - f.s, f.v == 0 and 1 or 0
  while true do
    local own, owned = number(call('ZSCORE', x .. 'o', op.o)) + more, b[4] > 0 and call('ZCARD', x .. 'u:' .. op.o)
    local rows = b[2] > 0 and call('HLEN', x .. 'z') - call('HEXISTS', x .. 'z', '#')
    totals[x] = totals[x] or number(call('HGET', x .. 'z', '#'))
    if b[3] > 0 and own > b[3] or owned and owned + new > b[4] then
      if op.gives == 'nothing' or not evict(op, op.o) then return -1 end
    elseif b[1] > 0 and totals[x] + more > b[1] or rows and rows + new > b[2] then
      if op.gives == 'nothing' or not evict_largest(op, own) then return -2 end
    else return nil end
  end
end
-- 1. Conditions. If a client repeats a step because it lost the answer, the step has left its id on its rows.
local there, done = {}, false
for _, op in ipairs(ops) do
  if op.op == 'put' or op.op == 'take' then done = done or head(op.k).w == asked.id end
end
local f = fence and not done and head(fence[1])
if f and (f.h ~= fence[2] or f.t ~= fence[3]) then return {0, -1} end
for i, op in ipairs(done and {} or ops) do
  local f, ok = op.k and head(op.k), true
  if op.op == 'put' or op.op == 'drop' then
    there[op.k], ok = op.op == 'put', not op.expect or f.v == op.expect
  elseif op.op == 'append' then
    local n = f[op.log]  -- it is evicted at -1
    ok = n >= 0 and (op.at == -1 or n == op.at or n == op.at + #op.entries)
    if there[op.k] == false or there[op.k] == nil and f.v == 0 then ok = false end
  elseif op.op == 'take' then
    ok = f.h and f.h ~= op.by and is_ended(f.h)
  end
  if not ok then return {0, i - 1} end
  if op.l and call('EXISTS', P .. 'v:' .. op.l) == 0 then error('missing: the value was not written') end
end
for _, op in ipairs(done and {} or ops) do  -- 2. Room.
  if op.op == 'put' then
    local f, x = head(op.k), op.x
    op.o, op.s = f.o or op.o, op.s or f.s
    if x and not tidied[x] then
      tidied[x] = call('ZRANGEBYSCORE', x .. 'x', '-inf', now, 'LIMIT', 0, AT_ONCE)
      for _, k in ipairs(tidied[x]) do if not heads[k] or heads[k].v == 0 then forget(x, k) end end
    end
    if x and f.v == 0 then forget(x, op.k) end  -- its row has expired, which the index does not know yet
    local full = op.bounds and make_room(op, f)
    if full then return answer(full) end
  end
end
-- 3. Writes.
local function hold(k, f, by)
  if f.h and f.h ~= by then call('ZREM', P .. 'h:' .. f.h, k) end
  if by then call('ZADD', P .. 'h:' .. by, f.e or 'inf', k) end
  if by and by ~= '' then call('ZADD', P .. 'marks', 'NX', 0, by) end
  f.h = by
end
local does = {signal = function(op) return call('PUBLISH', P .. 's:' .. op.topic, '') and 1 end}
function does.put(op, f, row)
  local k, new, more, set = op.k, f.v == 0, op.s - f.s, {}
  f.v, f.s, f.o, f.e = f.v + 1, op.s, op.o, op.life and now + op.life or f.e
  if op.d or op.l then
    set = op.d and {'d', ARGV[op.d]} or {'l', op.l}
    if not new and (op.d ~= nil) == (f.l ~= nil) then call('HDEL', row, op.d and 'l' or 'd') end
    if f.l then call('UNLINK', P .. 'v:' .. f.l) end
    f.l = op.l
  end
  if op.h then
    f.t = f.t + 1
    if op.h == '-' then call('HDEL', row, 'h') else set[#set + 1], set[#set + 2] = 'h', op.h end
  end
  if op.h or op.life and f.h then hold(k, f, op.h ~= '-' and (op.h or f.h) or nil) end
  if op.life then set[#set + 1], set[#set + 2] = 'e', f.e end
  call('HSET', row, 'v', f.v, 's', f.s, 't', f.t, 'o', f.o, 'w', asked.id, unpack(set))
  if op.life then call('PEXPIRE', row, op.life) end
  for log = 0, op.life and 1 or -1 do
    if f[log] ~= 0 then call('PEXPIRE', P .. 'l' .. log .. ':' .. k, op.life) end
  end
  if op.l and not f.e then call('PERSIST', P .. 'v:' .. op.l) end
  if f.l and f.e and (op.l or op.life) then call('PEXPIRE', P .. 'v:' .. f.l, f.e - now) end
  if op.x then
    turn = turn + 1
    if new or more ~= 0 then resize(op.x, f.o, more) end
    call('HSET', op.x .. 'z', k, string.format('%d %s', f.s, f.o), unpack(totals[op.x] and {'#', totals[op.x]} or {}))
    totals[op.x] = nil
    call('ZADD', op.x .. 'u:' .. f.o, turn + ((f.h or op.gives == 'logs' and f[0] < 0) and HELD or 0), k)
    if op.life then call('ZADD', op.x .. 'x', f.e, k) end
  end
  return f.v
end
function does.append(op, f, row)
  local log, n = P .. 'l' .. op.log .. ':' .. op.k, f[op.log]
  local at = op.at == -1 and n or op.at
  local after = at + #op.entries
  if n ~= after then
    if n == 0 then call('UNLINK', log) end
    for j, entry in ipairs(op.entries) do call('XADD', log, string.format('%d-1', at + j), 'e', ARGV[entry]) end
    if n == 0 and f.e then call('PEXPIRE', log, f.e - now) end
    f[op.log] = after
    call('HSET', row, 'n' .. op.log, after)
  end
  if op.cut > 0 then call('XTRIM', log, 'MINID', string.format('%d-0', op.cut + 1)) end
  return after
end
function does.take(op, f, row)
  f.v, f.t = f.v + 1, f.t + 1
  call('HSET', row, 'v', f.v, 't', f.t, 'h', op.by, 'w', asked.id)
  hold(op.k, f, op.by)
  return f.t
end
function does.drop(op, f)
  if f.v == 0 then return 0 end
  unlink(op.k, f)
  if op.x then forget(op.x, op.k) end
  return 1
end
local out = {1}
for i, op in ipairs(ops) do
  local f = op.k and head(op.k)
  out[i + 1] = not done and does[op.op](op, f, op.k and P .. 'r:' .. op.k)
    or op.op == 'put' and f.v or op.op == 'take' and f.t or op.op == 'append' and f[op.log] or 1
end
return answer(unpack(out))
"""
)

# ARGV: the process, its mark in ms, the most rows. Returns 1 if its mark was not alive, then rows that may be taken,
# and with an empty kind processes whose rows cannot be read.
BEAT = Script(
    _HEAD
    + """
local me, most, marks = ARGV[1], tonumber(ARGV[3]), P .. 'marks'
local function free(process)
  for _, place in ipairs(redis.pcall('SMEMBERS', P .. 'q:' .. process)) do redis.pcall('HDEL', P .. place, process) end
  call('UNLINK', P .. 'q:' .. process)
end
local out = {is_ended(me) and 1 or 0}
call('ZADD', marks, ARGV[2] == '0' and 0 or now + ARGV[2], me)
if ARGV[2] == '0' then free(me) end
call('ZREMRANGEBYSCORE', P .. 'h:' .. me, '-inf', now)
-- A mark that ends later was written before the clock was set back.
local latest = now + math.max(6000, ARGV[2])
for _, process in ipairs(call('ZRANGEBYSCORE', marks, '(' .. latest, 'inf')) do call('ZADD', marks, latest, process) end
local function held(process)
  local keys = redis.pcall('ZRANDMEMBER', P .. 'h:' .. process, most)
  if keys.err then
    out[#out + 1] = ':' .. process
    return 1
  end
  for _, k in ipairs(keys) do
    local a = redis.pcall('HMGET', P .. 'r:' .. k, 'h', 'e')
    if a.err or a[2] and not tonumber(a[2]) then
      -- A damaged row, which is reported by those who use it, takes no mark from a process.
    elseif a[1] ~= process or a[2] and number(a[2]) <= now then
      call('ZREM', P .. 'h:' .. process, k)
    elseif #out <= most then
      out[#out + 1] = k
    end
  end
  return #keys
end
held('')
local ended = call('ZRANGEBYSCORE', marks, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 100)
for i = 1, #ended, 2 do
  local process, since = ended[i], number(ended[i + 1])
  if process ~= me then
    local rows = held(process)
    if since < now - 3600000 then
      free(process)
      if rows == 0 then call('ZREM', marks, process) elseif since > 0 then call('ZADD', marks, 0, process) end
    end
  end
end
return out
"""
)

# ARGV: the process. Returns 1 while its mark is alive.
ALIVE = Script(_HEAD + "return is_ended(ARGV[1]) and 0 or 1")

# KEYS: each window. ARGV: 1 to peek, then limit and ms of each. Returns nothing, or the index and the wait in ms of the
# window that stays full longest.
COUNT = Script(
    _HEAD
    + """
local fine, writes, index, longest = us / 1000, {}, -1, 0
for i = 2, #KEYS do
  local a = call('HMGET', KEYS[i], 's', 'b', 'p', 'n', 'l')
  local limit, ms, wait = tonumber(ARGV[2 * i - 2]), tonumber(ARGV[2 * i - 1]), 0
  local start = fine - fine % ms
  local passed, was = fine - start, a[1] and number(a[1]) or start
  local before, span, these, last = number(a[2]), number(a[3]), number(a[4]), number(a[5])
  -- A later bucket, if the clock was set back, counts like the one before.
  local apart = math.abs(start - was)
  if apart > 0.5 then
    before, span = math.abs(apart - ms) < 0.5 and these or 0, was < start and last or ms
    these, last = 0, 0
  end
  local room = limit - these - 1
  if before * (span > 0 and math.max(0, 1 - passed / span) or 0) > room then
    if room >= 0 then
      wait = span * (1 - room / before) - passed
    else
      wait = ms - passed + (these > 0 and limit > 0 and last * (1 - (limit - 1) / these) or ms)
    end
    wait = math.max(10, wait)
  end
  if wait > longest then index, longest = i - 2, wait end
  writes[i] = {start, before, span, these + 1, math.max(last, passed), 2 * ms}
end
if index >= 0 then return {index, string.format('%.3f', longest)} end
for i = 2, ARGV[1] == '1' and 0 or #KEYS do
  local start, before, span, these, last, life = unpack(writes[i])
  call('HSET', KEYS[i], 's', start, 'b', before, 'p', span, 'n', these, 'l', last)
  call('PEXPIRE', KEYS[i], math.ceil(life))
end
return {}
"""
)

# ARGV: the process, the limit, then a place without prefix, held and wanted for each wish. Returns what is granted and
# held elsewhere for each, -1 if that cannot be read.
PLACES = Script(
    _HEAD
    + """
local me, known, out = ARGV[1], {}, {}
call('ZADD', P .. 'marks', 'NX', 0, me)
for i = 3, #ARGV, 3 do
  local place, held, wanted, elsewhere = P .. ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), 0
  local all = redis.pcall('HGETALL', place)
  local damaged = all.err
  for j = 1, #all, 2 do
    local process = all[j]
    if known[process] == nil then known[process] = not is_ended(process) end
    if process ~= me and known[process] then
      damaged = damaged or not tonumber(all[j + 1])
      elsewhere = elsewhere + (tonumber(all[j + 1]) or 0)
    end
  end
  local granted = damaged and 0 or math.max(0, math.min(wanted, ARGV[2] - elsewhere - held))
  if damaged then
    elsewhere = -1
  elseif held + granted > 0 then
    call('HSET', place, me, held + granted)
    call('SADD', P .. 'q:' .. me, ARGV[i])
  else
    call('HDEL', place, me)
    call('SREM', P .. 'q:' .. me, ARGV[i])
  end
  out[#out + 1], out[#out + 2] = granted, elsewhere
end
return out
"""
)
