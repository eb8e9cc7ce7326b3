-- For the scripts of server/scripts/, put together as the build does it: tests/format/test_lua.py.
std = "lua51"
read_globals = {"redis", "KEYS", "ARGV"}
max_line_length = 120
-- A script may use a part of what it includes. test_lua.py sees that each function is used by some script.
ignore = {
	"211/remember_leases", "211/publish_change", "211/lease_.*", "211/several_.*", "211/queue_.*", "211/now_ms", "211/until_s", "211/count_waiters",
	"311/waited",
}
