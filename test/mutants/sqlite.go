package main

const sqlite = "backends/sqlite"

var (
	sqliteTorture = check{sqlite, "^TestTorture$"}
	sqliteFencing = check{sqlite + "/test/takeovers", "^TestTakeovers$"}
	sqliteCopies  = check{sqlite, "^TestAFileThatIsReplaced$|^TestACopy"}
)

// ofSQLite are bugs of leases in a file.
var ofSQLite = []mutant{
	{
		name: "sqlite-boot-ignored", does: "what was held before a boot stands after it, by a clock that began anew",
		edits: []edit{
			{"backends/sqlite/schema.go", "if m.id != \"\" && m.file == file && m.boot == boot {", "if m.id != \"\" && m.file == file {"},
			{"backends/sqlite/schema.go", "case m.boot != s.clock.boot:", "case false:"},
			{"backends/sqlite/store.go", "case m.boot != s.clock.boot:\n\t\treturn \"\"", "case false:\n\t\treturn \"\""},
		},
		hunters: []check{{sqlite, "^TestABootEndsEverySession$"}},
	},
	{
		name: "sqlite-wall-clock", does: "sessions end by the machine's wall clock, which may be set",
		edits:   []edit{{"backends/sqlite/clock_linux.go", "err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)", "err := unix.ClockGettime(unix.CLOCK_REALTIME, &t)"}},
		hunters: []check{sqliteTorture, {sqlite, "^TestTheClockIs"}},
	},
	{
		name: "sqlite-clock-without-suspends", does: "the clock stands still while the machine sleeps, and each process has one of its own",
		edits:   []edit{{"backends/sqlite/clock_linux.go", "\treturn time.Duration(t.Nano()), err\n", "\treturn time.Since(begun), err\n"}, {"backends/sqlite/clock_linux.go", "func bootTime() (time.Duration, error) {", "var begun = time.Now()\n\nfunc bootTime() (time.Duration, error) {"}},
		hunters: []check{sqliteTorture, {sqlite, "^TestTheClockIs"}},
	},
	{
		name: "sqlite-begin-deferred", does: "a transaction reads before it has the right to write",
		edits:   []edit{{"backends/sqlite/transaction.go", "if err := l.begin(ctx, \"BEGIN IMMEDIATE\"); err != nil {", "if err := l.begin(ctx, \"BEGIN\"); err != nil {"}},
		hunters: []check{{sqlite, "^TestConformanceOverProcesses$/^(capabilities|acquire|churn)$"}},
	},
	{
		name: "sqlite-tokens-unsynced", does: "a token is told before it is on the disk",
		edits:   []edit{{"backends/sqlite/transaction.go", "if err := l.synced(synced); err != nil {", "if err := l.synced(synced && false); err != nil {"}},
		hunters: []check{{sqlite, "^TestAPowerCut$"}},
	},
	{
		name: "sqlite-tokens-by-clock", does: "a token is the wall clock's time, also where the one before is above it",
		edits:   []edit{{"backends/sqlite/ownership.go", "SET last = max(last + 1, ?) RETURNING", "SET last = ? RETURNING"}},
		hunters: []check{kit(sqlite, "acquire|batch|token|churn"), {sqlite, "^TestAPowerCut$"}},
	},
	{
		name: "sqlite-told-twice", does: "what changed while a watch's snapshot was awaited is told by that, and again",
		edits:   []edit{{"backends/sqlite/watch.go", "if c.seq > 0 && c.seq <= m.from {", "if false {"}},
		hunters: []check{{sqlite, "^TestAChangeBefore"}},
	},
	{
		name: "sqlite-change-untold", does: "a watch begins to be told of changes after some that are not in its snapshot",
		edits:   []edit{{"backends/sqlite/watch.go", "case s.follow.cursor > at.from:", "case false:"}},
		hunters: []check{{sqlite, "^TestAChangeBefore"}},
	},
	{
		name: "sqlite-guard-by-name", does: "a guard asks whether the name is held, under whichever token",
		edits:   []edit{{"backends/sqlite/guard.go", "case stands != token:", "case false:"}},
		hunters: []check{sqliteFencing},
	},
	{
		name: "sqlite-guard-without-lock", does: "a guard reads, and others may write before its transaction does",
		edits:   []edit{{"backends/sqlite/guard.go", "UPDATE main.holdfast_meta SET last = last WHERE 0", "SELECT 1 FROM main.holdfast_meta"}},
		hunters: []check{sqliteFencing, {sqlite, "^TestATakeoverWaits|^TestATransactionThatReadTooEarly"}},
	},
	{
		name: "sqlite-guard-of-the-past", does: "a guard does not look whether the session has run out",
		edits:   []edit{{"backends/sqlite/guard.go", "case ends.Int64 <= now:", "case ends.Int64 <= 0:"}},
		hunters: []check{{sqlite, "^TestWhatGuardRefuses$"}},
	},
	{
		name: "sqlite-past-unlocked", does: "what has run out is told as free while a renewal of it is being committed",
		edits:   []edit{{"backends/sqlite/past.go", "p.link.begin(ctx, \"BEGIN IMMEDIATE\")", "p.link.begin(ctx, \"BEGIN\")"}},
		hunters: []check{{sqlite, "^TestAReadWaitsForARenewalThatIsBeingCommitted$|^TestTheClockIsReadUnderTheWriteLock$"}},
	},
	{
		name: "sqlite-past-of-others", does: "a read takes for final what was found before it began to wait",
		edits:   []edit{{"backends/sqlite/past.go", "if p.now < at {", "if p.now == always {"}},
		hunters: []check{{sqlite, "^TestAPast|^TestAReadWaits"}},
	},
	{
		name: "sqlite-end-of-the-untold", does: "a watch tells the end of what it never told of, as that had run out before",
		edits:   []edit{{"backends/sqlite/watch.go", "return !ended || c.Kind != lease.EventDelete", "return !ended || true"}},
		hunters: []check{{sqlite, "^TestAWatchBegins"}},
	},
	{
		name: "sqlite-network-disk", does: "a file on another machine is taken, whose locks do not reach everybody",
		edits:   []edit{{"backends/sqlite/place_linux.go", "\tif err := p.local(); err != nil {\n\t\treturn nil, err\n\t}\n", ""}},
		hunters: []check{{sqlite, "^TestBadInput$"}},
	},
	{
		name: "sqlite-foreign-time", does: "a process takes part whose clock a time namespace shifts",
		edits:   []edit{{"backends/sqlite/clock_linux.go", "if err := sharedTime(\"/proc/self\"); err != nil {", "if err := sharedTime(\"/proc/self\"); err != nil && false {"}},
		hunters: []check{{sqlite, "^TestAProcessInATimeNamespace"}},
	},
	{
		name: "sqlite-replaced-unseen", does: "a Store goes on in a file that was replaced at its path",
		edits:   []edit{{"backends/sqlite/transaction.go", "err := s.place.replaced()", "err := error(nil)"}},
		hunters: []check{sqliteCopies},
	},
	{
		name: "sqlite-copy-unseen", does: "a Store goes on in a file over which an older copy was written",
		edits:   []edit{{"backends/sqlite/schema.go", "case m.last < seen:", "case false:"}},
		hunters: []check{sqliteCopies},
	},
	{
		name: "sqlite-beside-believers", does: "another file is begun at a path while somebody may believe in what was held in the former",
		edits:   []edit{{"backends/sqlite/transaction.go", "if s.dead != nil && int64(s.clock.now()) > s.trusted.Load() {", "if s.dead != nil {"}},
		hunters: []check{sqliteCopies},
	},
	{
		name: "sqlite-renewal-resurrects", does: "a renewal that comes too late has the session live again",
		edits:   []edit{{"backends/sqlite/session.go", "return o, stands && o.ends > t.now && o.Owner", "return o, stands && o.Owner"}},
		hunters: []check{waiting(sqlite, "session|late"), {sqlite, "^TestMoreEndsThan"}},
	},
	{
		name: "sqlite-while-ignored", does: "a claim is won though what it is to hang on does not stand",
		edits:   []edit{{"backends/sqlite/ownership.go", "if !on.is(c.while) {", "if !on.is(c.while) && on.bad {"}},
		hunters: []check{kit(sqlite, "while")},
	},
}
