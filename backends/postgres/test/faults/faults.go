//go:build linux

package main

import (
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// faults are what Postgres, and what stands before it, does to a store.
func faults() []fault {
	return []fault{
		{name: "PostmasterKilled", title: "kill -9 of the postmaster, started again", keeps: true,
			inflict: down((*postgrestest.Server).KillPostmaster)},
		{name: "AllKilled", title: "kill -9 of all processes, started again", keeps: true,
			inflict: down((*postgrestest.Server).Kill)},
		{name: "ImmediateStopUnderLoad", title: "immediate stop under load of writes, crash recovery", keeps: true,
			inflict: immediateUnderLoad},
		{name: "Stopped", title: "all processes stopped (SIGSTOP) for 3 TTLs", loses: true, inflict: paused},
		{name: "BackendsTerminated", title: "`pg_terminate_backend` of every connection", keeps: true,
			inflict: terminated},
		{name: "SyncPromoted", title: "primary killed, synchronous standby promoted", keeps: true,
			prepare: withStandby(true), inflict: promoted},
		{name: "OldPrimaryBack", title: "the same; the old primary comes back as standby, and takes over again",
			prepare: withStandby(true), inflict: andBack},
		{name: "TwoPrimaries", title: "the same; the old primary comes back as a second primary, which one of three nodes reaches, for 2 TTLs",
			prepare: withStandby(true), inflict: twoPrimaries(false)},
		{name: "TwoPrimariesStranger", title: "the same, and a process begins that reaches the second primary only", twice: true,
			prepare: withStandby(true), inflict: twoPrimaries(true), check: onlyByStranger},
		{name: "BouncerRestarted", title: "PgBouncer (transaction mode) killed, started again", keeps: true, needs: []string{postgrestest.NeedBouncer},
			prepare: withBouncer, inflict: bouncerRestarted},
		{name: "ServerKilledBehindBouncer", title: "kill -9 of the server behind PgBouncer, started again", needs: []string{postgrestest.NeedBouncer},
			prepare: withBouncer, inflict: down((*postgrestest.Server).Kill)},
		{name: "TooManyConnections", title: "every connection ended, and none given (53300), for 2 TTLs",
			loses: true, inflict: tooManyConnections},
		{name: "StatementTimeout", title: "`statement_timeout` = 20 ms for 2 TTLs",
			inflict: setting("statement_timeout", "20ms", 2)},
		{name: "TableLocked", title: "`lock_timeout` = 50 ms, and sessions locked by another (55P03) for 2 TTLs",
			loses: true, inflict: tableLocked},
		{name: "ReadOnly", title: "`default_transaction_read_only` = on (25006) for 2 TTLs", keeps: true,
			inflict: setting("default_transaction_read_only", "on", 2)},
		{name: "Serializable", title: "`default_transaction_isolation` = serializable for 2 TTLs", keeps: true,
			inflict: setting("default_transaction_isolation", "serializable", 2)},
		{name: "DiskFull", title: "no room on the disk for data (53100) for 2 TTLs", keeps: true, needs: []string{postgrestest.NeedTmpfs},
			options: []postgrestest.Option{postgrestest.WithDisk(256 << 20)}, inflict: diskFull},
		{name: "LogDiskFull", title: "no room on the disk for the log, the server panics, for 2 TTLs", needs: []string{postgrestest.NeedTmpfs},
			options: []postgrestest.Option{postgrestest.WithDisk(256 << 20)}, inflict: logDiskFull},
		{name: "ForeignRow", title: "a row of a newer format stands under a name", keeps: true,
			inflict: foreignRow},
		{name: "ClockForward", title: "the server's clock steps forward by TTL/2", clock: true, needs: []string{postgrestest.NeedFaketime},
			options: []postgrestest.Option{postgrestest.WithFaketime()},
			inflict: clockStep(func(ttl time.Duration) time.Duration { return ttl / 2 })},
		{name: "ClockFarForward", title: "the server's clock steps forward by 10 TTLs", clock: true, needs: []string{postgrestest.NeedFaketime},
			options: []postgrestest.Option{postgrestest.WithFaketime()},
			inflict: clockStep(func(ttl time.Duration) time.Duration { return 10 * ttl })},
		{name: "ClockBack", title: "the server's clock steps back by an hour", keeps: true, needs: []string{postgrestest.NeedFaketime},
			options: []postgrestest.Option{postgrestest.WithFaketime()},
			inflict: clockStep(func(time.Duration) time.Duration { return -time.Hour })},
		{name: "ClockBackHolderDead", title: "the server's clock steps back by 2 TTLs, and a holder is cut off then", needs: []string{postgrestest.NeedFaketime},
			options: []postgrestest.Option{postgrestest.WithFaketime()}, inflict: clockBackHolderDead},
		{name: "IdleTransaction", title: "a user's idle transaction with a snapshot and a write, for 3 TTLs", keeps: true,
			inflict: idleTransaction, check: handsOverAsBefore},
		{name: "NodeCutOff", title: "one node's link cut for 2 TTLs", inflict: nodeCutOff},
	}
}

// begins is called when a fault begins after its inflict, lost once service is surely gone, returns
// before what may make it answer again.
func (b *bed) begins()  { b.began = now() }
func (b *bed) lost()    { b.gone = now() }
func (b *bed) returns() { b.returning = now() }
