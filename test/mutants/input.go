package main

// Checks that give what is out of all bounds to whatever a package exports.
var (
	leaseInput     = check{"lease", "^TestWhatNo|^TestNoContext|^TestZeroValues|^TestALeaseThatWraps"}
	singletonInput = check{"singleton", "^TestWhatNo|^TestNoContext|^TestZeroValues"}
	shardInput     = check{"sharding", "^TestWhatNo|^TestNoContext|^TestZeroValues"}
	groupInput     = check{"membership", "^TestWhatNo|^TestNoContext|^TestZeroValues"}
	nodeInput      = check{"node", "^TestBadConfigs$"}
)

// ofInput are bugs of what is checked when something is made.
var ofInput = []mutant{
	{
		name: "no-context-passes", does: "a nil context is taken for one",
		edits:   []edit{{"lease/valid.go", "	if ctx == nil {\n		return fmt.Errorf(\"ctx:", "	if false {\n		return fmt.Errorf(\"ctx:"}},
		hunters: []check{leaseInput, singletonInput, shardInput, groupInput, nodeInput},
	},
	{
		name: "rings-walked-for-ever", does: "a lease is unwrapped without a bound",
		edits:   []edit{{"lease/lease.go", "const mostWrappers = 100", "const mostWrappers = 1 << 62"}},
		hunters: []check{leaseInput},
	},
	{
		name: "nil-option-passes", does: "an option that was given nil is one that was not given",
		edits:   []edit{{"internal/input/input.go", "	if Nil(v) {\n		m.option", "	if false {\n		m.option"}},
		hunters: []check{singletonInput, shardInput, groupInput},
	},
	{
		name: "nil-pointer-is-something", does: "a nil pointer in an interface passes for what it implements",
		edits:   []edit{{"internal/input/input.go", "		return r.IsNil()\n", "		return false\n"}},
		hunters: []check{leaseInput, singletonInput, shardInput, nodeInput},
	},
	{
		name: "linger-unbounded", does: "durations of a singleton run over when they are added to",
		edits:   []edit{{"singleton/options.go", "if x.is < x.least || x.is > input.Longest {", "if x.is < x.least {"}},
		hunters: []check{singletonInput},
	},
	{
		name: "unmade-region-routes", does: "a Region that nobody made looks for its shards",
		edits:   []edit{{"sharding/mail.go", "if r == nil || len(r.shards) == 0 {", "if r == nil {"}},
		hunters: []check{shardInput},
	},
	{
		name: "no-shards-divide", does: "the shard of none is divided by none",
		edits:   []edit{{"sharding/internal/directory/hash.go", "uint64(max(shards, 1))", "uint64(shards)"}},
		hunters: []check{shardInput},
	},
}
