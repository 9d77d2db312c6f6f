package main

const pg = "backends/postgres"

var (
	pgFencing = check{pg, "^TestGuardAgainstTakeOvers$"}
	pgGuards  = check{pg, "^TestGuard|^TestTakeOver|^TestWaiterBehind"}
	pgRenewal = check{pg, "^TestARenewalUnderWayAtTheEnd$"}
	pgHistory = check{pg, "^TestTokensAreAboveAllThatWasSeen$"}
	pgWorks   = check{pg, "^TestSchemaByHand$|^TestGuardsOfOneLease"} // the SQL is taken, and does its work
	pgLog     = check{pg, "^TestWatch"}
)

// ofPostgres are bugs of leases in PostgreSQL, in what the client sends and in what the database
// does.
var ofPostgres = []mutant{
	{
		name: "pg-expiry-not-final", does: "a name is taken over from a session that ran out, whose renewal may be under way",
		edits: []edit{{"backends/postgres/sql/acquire.sql", "WHEN l.session IS NULL OR s.id IS NULL OR s.ends = '-infinity' THEN 'done'",
			"WHEN l.session IS NULL OR s.id IS NULL OR s.ends <= clock_timestamp() THEN 'done'"}},
		hunters: []check{pgRenewal},
		spares:  pgWorks,
	},
	{
		name: "pg-expiry-without-lock", does: "a session is ended by what was read before its row was locked",
		edits: []edit{{"backends/postgres/sql/base.sql", "AND s.ends <= clock_timestamp() AND s.ends > '-infinity' FOR UPDATE SKIP LOCKED);",
			"AND s.ends <= clock_timestamp() AND s.ends > '-infinity');"}},
		hunters: []check{pgRenewal},
		spares:  pgWorks,
	},
	{
		name: "pg-token-by-clock", does: "a token is the time, also where the one before is above it",
		edits:   []edit{{"backends/postgres/sql/base.sql", "SELECT greatest(last + 1, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)", "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"}},
		hunters: []check{kit(pg, "token|hands"), {pg + "/test/faults", "^TestFaults$/^ClockBack$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-token-of-the-row", does: "a token is above the row's alone, and not above what a row that was removed had",
		edits:   []edit{{"backends/postgres/sql/acquire.sql", "holdfast.next_rev(greatest(l.rev, p_seen, CASE WHEN l.rev = 0 THEN bottom END))", "holdfast.next_rev(greatest(l.rev, p_seen))"}},
		hunters: []check{pgHistory, {pg, "^TestPurge$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-seen-unsaid", does: "the client does not say which tokens it knows of",
		edits:   []edit{{"backends/postgres/sql/acquire.sql", "holdfast.next_rev(greatest(l.rev, p_seen, CASE WHEN", "holdfast.next_rev(greatest(l.rev, CASE WHEN"}},
		hunters: []check{pgHistory},
		spares:  pgWorks,
	},
	{
		name: "pg-guard-without-lock", does: "a guard looks at the lease, and does not lock its row",
		edits:   []edit{{"backends/postgres/sql/guard.sql", "WHERE x.name = p_name FOR SHARE;", "WHERE x.name = p_name;"}},
		hunters: []check{pgFencing},
		spares:  pgWorks,
	},
	{
		name: "pg-guard-by-name", does: "a guard asks whether the name is held, under whichever token",
		edits:   []edit{{"backends/postgres/sql/guard.sql", " OR l.rev <> p_token\n", "\n"}},
		hunters: []check{pgFencing},
		spares:  pgWorks,
	},
	{
		name: "pg-guard-of-the-past", does: "a guard looks at the time at which the transaction began",
		edits:   []edit{{"backends/postgres/sql/guard.sql", "s.ends > clock_timestamp()", "s.ends > now()"}},
		hunters: []check{pgGuards},
		spares:  pgWorks,
	},
	{
		name: "pg-gaps-forgotten", does: "a watch does not look again for a change that is missing between two others",
		edits:   []edit{{"backends/postgres/gaps.go", "for m := g.last + 1; m < n; m++ {", "for m := n; m < n; m++ {"}},
		hunters: []check{kit(pg, "watch"), pgLog},
	},
	{
		name: "pg-watch-amid-writers", does: "a watch begins with the last number that was taken, though its writer, or one before, is under way",
		edits:   []edit{{"backends/postgres/hub.go", "if ok && len(writers) == 0 {", "if ok {"}},
		hunters: []check{kit(pg, "watch"), pgLog},
	},
	{
		name: "pg-history-ignored", does: "a watch goes on in the log of another history of the database",
		edits:   []edit{{"backends/postgres/hub.go", "if text(x.meta) != r.history {", "if false {"}},
		hunters: []check{pgLog},
	},
	{
		name: "pg-bell-within", does: "the bell is rung in the transaction that writes, so that these commit one after another",
		edits: []edit{{"backends/postgres/sql/base.sql", "PERFORM pg_advisory_xact_lock_shared(1215261796, 'holdfast'::regnamespace::oid::int);",
			"PERFORM holdfast.ring();\n  PERFORM pg_advisory_xact_lock_shared(1215261796, 'holdfast'::regnamespace::oid::int);"}},
		hunters: []check{{pg, "^TestWritersRingNoBell$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-clients-clock", does: "a session lives by the clock of who renews it",
		edits: []edit{
			{"backends/postgres/sql/session.sql", "p_address text, p_ttl bigint)", "p_address text, p_ttl bigint, p_now timestamptz)"},
			{"backends/postgres/sql/session.sql", "p_ttl, clock_timestamp() + p_ttl * interval", "p_ttl, p_now + p_ttl * interval"},
			{"backends/postgres/sql/session.sql", "SET ends = clock_timestamp() + x.ttl * interval", "SET ends = p_now + x.ttl * interval"},
			{"backends/postgres/sql/session.sql", "holdfast.renew(p_ids bigint[], p_incarnations text[])", "holdfast.renew(p_ids bigint[], p_incarnations text[], p_now timestamptz)"},
			{"backends/postgres/sql/session.sql", "THEN clock_timestamp() + s.ttl * interval", "THEN p_now + s.ttl * interval"},
			{"backends/postgres/session.go", "$4::text, $5::bigint)\",", "$4::text, $5::bigint, $6::timestamptz)\","},
			{"backends/postgres/session.go", "int64((want.TTL-1)/time.Millisecond) + 1},", "int64((want.TTL-1)/time.Millisecond) + 1, time.Now().Format(time.RFC3339Nano)},"},
			{"backends/postgres/session.go", "\"($1::bigint[], $2::text[])\",", "\"($1::bigint[], $2::text[], $3::timestamptz)\","},
			{"backends/postgres/session.go", "return db.Escape(sessions[i].Owner.Incarnation) })},", "return db.Escape(sessions[i].Owner.Incarnation) }), time.Now().Format(time.RFC3339Nano)},"},
		},
		hunters: []check{waiting(pg, "session"), {pg, "^TestTheServersClockDecides$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-renewal-resurrects", does: "a renewal that comes too late has the session live again",
		edits: []edit{{"backends/postgres/sql/session.sql", "CASE WHEN s.ends > clock_timestamp()\n      THEN clock_timestamp() + s.ttl * interval '1 ms' ELSE '-infinity' END",
			"clock_timestamp() + s.ttl * interval '1 ms'"}},
		hunters: []check{waiting(pg, "session")},
		spares:  pgWorks,
	},
	{
		name: "pg-any-session-renewed", does: "a renewal asks for a session by its number, whosever it is",
		edits:   []edit{{"backends/postgres/sql/session.sql", "ON s.id = u.i AND s.incarnation = u.inc WHERE", "ON s.id = u.i WHERE"}},
		hunters: []check{waiting(pg, "session"), {pg, "^TestASessionIsOfOneIncarnation$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-offer-of-anybody", does: "a transfer goes to the session of an offer, whosever it is",
		edits: []edit{
			{"backends/postgres/sql/acquire.sql", "s := holdfast.pin(r.i, r.inc);", "s := holdfast.pin(r.i, (SELECT y.incarnation FROM holdfast.session y WHERE y.id = r.i));"},
			{"backends/postgres/sql/acquire.sql", "ON t.id = p_sessions[i] AND t.inc = p_incarnations[i]", "ON t.id = p_sessions[i]"},
		},
		hunters: []check{kit(pg, "transfer|invalid"), {pg, "^TestASessionIsOfOneIncarnation$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-while-ignored", does: "a claim is won though what it is to hang on does not stand",
		edits:   []edit{{"backends/postgres/sql/acquire.sql", "OR p.nonce IS DISTINCT FROM p_while_nonce[i] OR ps.id IS NULL OR ps.ends = '-infinity') THEN 'parent'", "OR p.nonce IS DISTINCT FROM p_while_nonce[i] OR ps.id IS NULL OR ps.ends = '-infinity') AND false THEN 'parent'"}},
		hunters: []check{kit(pg, "while")},
		spares:  pgWorks,
	},
	{
		name: "pg-while-unlocked", does: "what a claim hangs on is looked at, and may be gone when the claim is committed",
		edits:   []edit{{"backends/postgres/sql/acquire.sql", "WHERE l.name = ANY (p_while) FOR SHARE SKIP LOCKED);", "WHERE l.name = ANY (p_while));"}},
		hunters: []check{kit(pg, "while"), {pg, "^TestAParentStays"}},
		spares:  pgWorks,
	},
	{
		name: "pg-commit-unflushed", does: "commits are not flushed where the database does not ask for it",
		edits:   []edit{{"backends/postgres/sql/base.sql", "IN ('off', 'local') THEN", "IN ('none') THEN"}},
		hunters: []check{{pg, "^TestWhatIsHeldOutlivesACrash$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-isolation-unasked", does: "statements run in whichever isolation is the database's default",
		edits:   []edit{{"backends/postgres/sql/base.sql", "current_setting('transaction_isolation') <> 'read committed' THEN", "current_setting('transaction_isolation') = 'none' THEN"}},
		hunters: []check{{pg + "/test/faults", "^TestFaults$/^Serializable$"}, {pg, "^TestContentionUnderOtherDefaults$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-sweep-early", does: "what nobody renews for a second is swept before its time",
		edits: []edit{
			{"backends/postgres/sql/session.sql", "dead := ARRAY(SELECT s.id FROM holdfast.session s WHERE s.ends <= clock_timestamp());", "dead := ARRAY(SELECT s.id FROM holdfast.session s WHERE s.ends <= clock_timestamp() + interval '900 ms');"},
			{"backends/postgres/sql/base.sql", "AND s.ends <= clock_timestamp() AND s.ends > '-infinity' FOR UPDATE SKIP LOCKED);", "AND s.ends <= clock_timestamp() + interval '900 ms' AND s.ends > '-infinity' FOR UPDATE SKIP LOCKED);"},
		},
		hunters: []check{waiting(pg, "keeper|watch")},
		spares:  pgWorks,
	},
	{
		name: "pg-sweep-beside-acquire", does: "a session is removed while something is being acquired under it",
		edits: []edit{{"backends/postgres/sql/session.sql", "DELETE FROM holdfast.session s WHERE s.id = ANY (locked)\n      AND NOT EXISTS (SELECT FROM holdfast.lease l WHERE l.session = s.id AND l.format = 1);",
			"DELETE FROM holdfast.session s WHERE s.id = ANY (locked);"}},
		hunters: []check{waiting(pg, "session"), {pg, "^TestSweepBesideAcquire$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-session-not-pinned", does: "a session may end while something is acquired under it",
		edits:   []edit{{"backends/postgres/sql/base.sql", "AND x.ends > clock_timestamp() FOR KEY SHARE;", "AND x.ends > clock_timestamp();"}},
		hunters: []check{{pg, "^TestSweepBesideAcquire$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-late-entities", does: "what is remembered late is written over what came after it",
		edits:   []edit{{"backends/postgres/sql/entities.sql", "applied := mark = p_mark;", "applied := true;"}},
		hunters: []check{{pg + "/entities", "."}},
		spares:  pgWorks,
	},
	{
		name: "pg-encoding-unasked", does: "a connection that takes names for other ones is not told from those that don't",
		edits:   []edit{{"backends/postgres/sql/base.sql", "IF pg_client_encoding() NOT IN ('UTF8', 'SQL_ASCII') THEN", "IF false AND pg_client_encoding() NOT IN ('UTF8', 'SQL_ASCII') THEN"}},
		hunters: []check{{pg, "^TestSettingsChangeWhileItRuns$"}},
		spares:  pgWorks,
	},
	{
		name: "pg-guard-by-old-primary", does: "a guard by an old primary counts, though the store has used the new one meanwhile",
		edits:   []edit{{"backends/postgres/guard.go", "(err == nil || fenced) && now != least", "fenced && now != least"}},
		hunters: []check{{pg, "^TestGuardByAnOldPrimary$"}},
		spares:  pgWorks,
	},
}
