-- Deletes the log of a deleted turn for good: its grave refuses every writer for as long as it lasts.
-- KEYS: head, entries. ARGV: a fence above every epoch, milliseconds.
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'attempt', 0, 'last', 0, 'origin', '')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SPUBLISH', KEYS[1], '')
return 1
