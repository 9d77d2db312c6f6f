package leasetest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/barelease"
	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// flawedBare makes leases over a map that have a flaw.
func flawedBare(flaw barelease.Flaw) BareMaker {
	return func(tb TB) Bare { return Bare(barelease.NewWorld(tb.Cleanup, 10*time.Second, flaw)) }
}

// findings runs cases, and returns what they found: a case's name and the rule.
func findings(t *testing.T, f BareMaker, run []bareCase) (all []string) {
	for _, c := range run {
		synctest.Test(t, func(t *testing.T) {
			r := cases.Record(t, c.name, func(tb TB) { c.run(newBareT(tb, f, options{fake: true})) })
			time.Sleep(2 * time.Minute) // what a flaw has begun ends
			for _, text := range r.Failures() {
				rule, _, _ := strings.Cut(strings.TrimPrefix(text, "broken rule: "), "\n")
				all = append(all, c.name+": "+rule)
			}
		})
	}
	return all
}

// bareCatch says which case must notice a flaw, and by which rule.
type bareCatch struct {
	name string
	rule bareRule
}

var bareCatches = map[barelease.Flaw]bareCatch{
	barelease.WinsAlways:      {"acquire/again", bareHeld},
	barelease.WinsInTwoSteps:  {"acquire/one-winner", bareOneWinner},
	barelease.RefusedIsError:  {"acquire/again", bareHeld},
	barelease.AgainIsRefused:  {"acquire/again", bareAgain},
	barelease.RefusedFrees:    {"acquire/one-winner", bareOneWinner},
	barelease.WinsAfterEnd:    {"acquire/context-done", bareContext},
	barelease.WaitsForEver:    {"acquire/unanswered", bareReturns},
	barelease.SilenceIsNo:     {"acquire/unanswered", bareClaims},
	barelease.SilenceIsYes:    {"acquire/unanswered", bareClaims},
	barelease.WinsLate:        {"acquire/unanswered", bareGivenBack},
	barelease.ReleasesNothing: {"acquire/again", bareRelease},
	barelease.ReleasesByName:  {"partition/never-two", bareReleaseNo},
	barelease.ReleaseNotHeld:  {"release/not-held", bareReleaseNo},
	barelease.ReleaseTrusts:   {"release/unanswered", bareEndsTrust},
	barelease.ReleaseGivesUp:  {"release/context-done", bareEndsTrust},
	barelease.ReleaseSaysDone: {"release/unanswered", bareClaims},
	barelease.ReleasedForEver: {"release/and-acquire-again", bareFree},
	barelease.AliveAsks:       {"alive/quick", bareQuick},
	barelease.AliveWaits:      {"alive/cut-off", bareQuick},
	barelease.AliveAllocates:  {"alive/allocates-nothing", bareAllocates},
	barelease.AlivePanics:     {"acquire/again", bareAsked},
	barelease.AliveIsFlag:     {"pause/beyond-the-ttl", bareWaking},
	barelease.TrustsTooLong:   {"partition/ends-in-time", bareDeadline},
	barelease.TrustsReply:     {"partition/never-two", bareExclusive},
	barelease.NeverRenews:     {"alive/renewed", bareRenewed},
	barelease.FirstErrorEnds:  {"partition/short", bareRenewed},
	barelease.ComesBack:       {"pause/beyond-the-ttl", bareRevived},
	barelease.RecordShort:     {"crash/after-the-ttl", bareEarly},
	barelease.RecordLong:      {"crash/after-the-ttl", bareLate},
	barelease.ToldTwice:       {"lost/told-once", bareTold},
	barelease.ToldNever:       {"lost/told-once", bareTold},
	barelease.ToldFirst:       {"lost/told-once", bareTold},
	barelease.ToldBefore:      {"lost/told-once", bareToldLate},
	barelease.ToldNoReason:    {"lost/told-once", bareReason},
	barelease.ToldRelease:     {"lost/not-on-release", bareNotTold},
	barelease.ToldPast:        {"lost/registered-late", barePast},
	barelease.StopSaysYes:     {"lost/stop", bareStopped},
	barelease.StopDoesNothing: {"lost/stop", bareStopped},
	barelease.PanicEndsOthers: {"lost/rude-callbacks", bareOthers},
	barelease.CallbacksQueue:  {"lost/rude-callbacks", bareOthers},
	barelease.CallbacksLocked: {"lost/rude-callbacks", bareOthers},
}

func TestRunLeaseFindsEveryFlaw(t *testing.T) {
	run, left := cases.Choose(bareCases(), needCut|needCrash|needPause, 0)
	require.Len(t, left, 7)
	noticed := map[string]bool{}
	flaws := cases.Constants(t, "../../internal/barelease/flaws.go")
	require.Len(t, flaws, len(bareCatches))
	for _, text := range flaws {
		flaw := barelease.Flaw(text)
		c, ok := bareCatches[flaw]
		require.True(t, ok, "%s: no case is said to notice it", flaw)
		found := findings(t, flawedBare(flaw), run)
		require.Contains(t, found, c.name+": "+string(c.rule), string(flaw))
		for _, f := range found {
			name, _, _ := strings.Cut(f, ": ")
			noticed[name] = true
		}
	}
	for _, c := range run {
		require.True(t, noticed[c.name], "no flaw is noticed by %s", c.name)
	}
	require.Empty(t, findings(t, flawedBare(""), run), "no flaw")
}

// The flaws of what a lease offers beside the four methods are those of wrapped handles.
type (
	sameToken   struct{ *lease.Handle }
	eternalTerm struct{ *lease.Handle }
	everTermed  struct{ *lease.Handle }
	neverFree   struct{ *lease.Handle }
	deafWaiter  struct{ *lease.Handle }
	everHeld    struct{ *lease.Handle }
	slowHolder  struct{ *lease.Handle }

	tokenOne struct{ lease.Term }
	eternal  struct{ lease.Term }
)

func (tokenOne) Token() store.Token            { return 1 }
func (eternal) CheckAlive() bool               { return true }
func (eternal) Check() (time.Duration, bool)   { return 0, true }
func (eternal) Context() context.Context       { return context.Background() }
func (l sameToken) Term() (lease.Term, bool)   { t, ok := l.Handle.Term(); return tokenOne{t}, ok }
func (l eternalTerm) Term() (lease.Term, bool) { t, ok := l.Handle.Term(); return eternal{t}, ok }
func (l everTermed) Term() (lease.Term, bool) {
	t, _ := lease.TermOf(l.Handle) // one that has ended, if it is not held
	return t, true
}
func (l neverFree) OnFree(func()) func() bool { return func() bool { return true } }
func (l deafWaiter) Wait(context.Context) error {
	return l.Handle.Wait(context.Background())
}
func (l everHeld) Holder(context.Context) (store.Record, bool, error) {
	return store.Record{}, true, nil
}
func (l slowHolder) Holder(ctx context.Context) (store.Record, bool, error) {
	time.Sleep(time.Minute)
	return l.Handle.Holder(ctx)
}

func TestRunLeaseFindsFlawsOfWhatIsOptional(t *testing.T) {
	type H = *lease.Handle
	for _, x := range []struct {
		with func(H) lease.Lease
		name string
		rule bareRule
	}{
		{func(h H) lease.Lease { return sameToken{h} }, "term/tokens-grow", bareToken},
		{func(h H) lease.Lease { return eternalTerm{h} }, "term/ends-with-release", bareTermEnds},
		{func(h H) lease.Lease { return eternalTerm{h} }, "term/ends-with-loss", bareTermEnds},
		{func(h H) lease.Lease { return everTermed{h} }, "term/none", bareTermNone},
		{func(h H) lease.Lease { return neverFree{h} }, "wait/told-when-free", bareWaits},
		{func(h H) lease.Lease { return deafWaiter{h} }, "wait/ends-with-its-context", bareReturns},
		{func(h H) lease.Lease { return everHeld{h} }, "holder/says", bareHolderSays},
		{func(h H) lease.Lease { return slowHolder{h} }, "holder/says", bareReturns},
	} {
		run, _ := cases.Choose(bareMoreCases, ^bareNeeds(0), 0)
		with := func(k *lease.Keeper) lease.Lease { return x.with(job(k)) }
		found := findings(t, handles(with), run)
		require.Contains(t, found, x.name+": "+string(x.rule))
	}
}

// job is a handle of the name.
func job(k *lease.Keeper, opts ...lease.Option) *lease.Handle {
	h, _ := k.Lease("job", opts...) // a valid name
	return h
}

// handles are those of Keepers over one store, with something around them.
func handles(with func(*lease.Keeper) lease.Lease) BareMaker {
	return func(tb TB) Bare {
		const ttl = 10 * time.Second
		shared, stores := memory.New(), map[lease.Lease]*faultstore.Store{}
		return Bare{
			TTL: ttl,
			Lease: func() lease.Lease {
				s := faultstore.Wrap(shared)
				k, err := lease.NewKeeper(s, lease.Config{ID: "n", TTL: ttl, Logger: zap.NewNop()})
				if err != nil {
					tb.Fatalf("%v", err)
				}
				tb.Cleanup(func() {
					s.Heal()
					ctx, cancel := context.WithTimeout(context.Background(), ttl)
					defer cancel()
					_ = k.Close(ctx)
					s.Wait()
				})
				l := with(k)
				stores[l] = s
				return l
			},
			Cut: func(l lease.Lease, on bool) {
				switch c, hangs := l.(child); {
				case hangs && on:
					_ = c.parent.Release(context.Background())
				case on:
					stores[l].Partition()
				default:
					stores[l].Heal()
				}
			},
		}
	}
}

// Every rule is reported for some flaw.
func TestEveryRuleOfRunLeaseIsBroken(t *testing.T) {
	broken := map[string]bool{
		// Of the optional ones, and what follows of others where it is noticed at all.
		string(bareToken): true, string(bareTermEnds): true, string(bareTermNone): true, string(bareWaits): true,
		string(bareHolderSays): true, string(bareUndone): true,
	}
	for _, c := range bareCatches {
		broken[string(c.rule)] = true
	}
	for name, text := range cases.Constants(t, "run.go") {
		require.True(t, broken[text], name)
	}
}

// child is a lease that hangs on another, which is acquired with it.
type child struct {
	*lease.Handle
	parent *lease.Handle
}

func (c child) Acquire(ctx context.Context) (bool, error) {
	if won, err := c.parent.Acquire(ctx); !won {
		return false, err
	}
	return c.Handle.Acquire(ctx)
}

// TestALossByAParentHasAReason: ErrParentLost is one of those of lease.Loss.
func TestALossByAParentHasAReason(t *testing.T) {
	parents := handles(func(k *lease.Keeper) lease.Lease {
		parent, _ := k.Lease("parent")
		return child{job(k, lease.WithParent(parent)), parent}
	})
	for _, c := range bareLostCases {
		if c.name == "lost/told-once" {
			require.Empty(t, findings(t, parents, []bareCase{c}))
		}
	}
}
