package entities

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
)

// budget is what may still happen that need not.
type budget struct{ Mail, GateFails, NotMade, MadeBadly, Panics, Ends, Asks, Unneeded, Plans, Losses, Bars uint8 }

// gateMode is what passes.
type gateMode uint8

const (
	noGate gateMode = iota
	open
	draining
	shut
)

// world is an entity and what is around it: who makes its actor, the actor, its gate and
// mailbox, the store, timers, and the shard. It is plain data.
type world struct {
	Left budget
	Born bool // the shard has an entry
	L    Life

	Ending, Lost, Barred                        bool // the shard
	Loaded, Known, Writing                      bool // the store
	Pending, Inbox, Back, Handled, Given, Taken uint8
	Maker                                       uint8 // who makes the actor: 1 is to come, 2 makes the gate, 3 makes the actor
	Stale                                       bool  // one makes it that is not waited for any more
	Gate                                        gateMode
	Alive, Told, Over, Used                     bool // the actor: runs, was told to stop, has ended, had mail
	Deadline, Wait                              bool // timers
}

// model is what is explored.
type model struct {
	bounds      budget
	store, hang bool // hang: what makes the actor may not return
	next        func(Life, Event, Now) (Life, []Effect)
	events      map[Event]int
	effects     map[Effect]int
	phases      map[Phase]int
}

var (
	errMail  = errors.New("mail was lost")
	errTwice = errors.New("two actors at a time")
	errShut  = errors.New("mail passes though the shard was lost")
	errEarly = errors.New("an actor is made, or lives, that must not")
)

// run is one step, under way.
type run struct {
	*model
	w   world
	err error
}

func (r *run) rule(ok bool, err error, what string) {
	if !ok && r.err == nil {
		r.err = fmt.Errorf("%w: %s", err, what)
	}
}

func (r *run) now() Now {
	w := &r.w
	return Now{Ending: w.Ending, Lost: w.Lost, Barred: w.Barred, Unwritten: r.store && !(w.Loaded && w.Known),
		Forgotten: r.store && !w.Known, Mail: w.Pending+w.Back > 0, Unused: !w.Used,
		Actor: w.Gate != noGate && (w.Alive || w.Over)}
}

// happens feeds an event to the machine, and carries out what comes of it.
func (r *run) happens(e Event) {
	r.events[e]++
	var effects []Effect
	r.w.L, effects = r.next(r.w.L, e, r.now())
	r.carryOut(effects)
}

func (r *run) carryOut(effects []Effect) {
	w := &r.w
	for _, f := range effects {
		r.effects[f]++
		switch f {
		case Remember:
			w.Writing = w.Loaded
		case Make:
			r.rule(w.Maker == 0 && !w.Alive, errTwice, "made anew")
			r.rule(!w.Ending, errEarly, "the shard ends")
			r.rule(!r.store || w.Known, errEarly, "it is not remembered")
			w.Maker = 1
		case MakeGate:
			w.Maker = 2
		case Spawn:
			w.Maker, w.Alive, w.Told, w.Over, w.Used = 3, false, false, false, false
		case Deliver:
			r.rule(w.Alive || w.Over, errEarly, "mail for no actor")
			w.Inbox, w.Pending = w.Inbox+w.Pending, 0
		case Drain:
			w.Gate = max(w.Gate, draining)
		case Lose, LoseLate:
			w.Gate = shut
		case GiveUp:
			w.Gate = shut
			if w.L.GivenUp { // its actor comes not to be any more
				w.Stale, w.Maker = w.Maker == 3, 0
			}
		case StopGently, StopNow:
			r.rule(w.Alive || w.Over, errEarly, "nothing to stop")
			w.Told = true
		case StopMade:
			w.Told = w.Told || w.Alive
		case Await:
			w.Deadline = true
		case Pause:
			w.Wait = true
		case Requeue:
			w.Given, w.Pending, w.Wait = w.Given+w.Pending, 0, false
			r.gone()
		case Remove:
			r.rule(w.Pending == 0, errMail, "the entity went with mail")
			r.gone()
		}
	}
}

func (r *run) gone() {
	w := &r.w
	r.rule(!w.Alive && w.Maker < 2, errEarly, "gone, and its actor lives or is being made")
	w.Born, w.L, w.Gate, w.Writing, w.Deadline, w.Used, w.Over, w.Told = false, Life{}, noGate, false, false, false, false, false
}

// ended is what collecting, and making in vain, have in common.
func (r *run) ended(e Event) {
	w := &r.w
	w.Pending, w.Back, w.Gate, w.Maker, w.Deadline, w.Over, w.Told = w.Pending+w.Back, 0, noGate, 0, false, false, false
	r.happens(e)
}

func (x *model) steps(w world, tell func(explore.Step[world])) {
	step := func(what string, sure bool, f func(r *run)) {
		r := &run{model: x, w: w}
		f(r)
		r.check()
		tell(explore.Step[world]{Label: explore.Label{What: what}, Sure: sure, Next: r.w, Err: r.err})
	}
	spend := func(what string, of func(*budget) *uint8, f func(r *run)) {
		if *of(&w.Left) > 0 {
			step(what, false, func(r *run) { *of(&r.w.Left)--; f(r) })
		}
	}
	if !w.Ending && !w.Barred {
		spend("mail comes", func(b *budget) *uint8 { return &b.Mail }, func(r *run) {
			r.w.Taken++
			if !r.w.Born {
				r.w.Born = true
				var effects []Effect
				r.w.L, effects = Begin(r.now())
				r.carryOut(effects)
			}
			if r.w.L.Phase == Active {
				r.w.Inbox++
			} else {
				r.w.Pending++
			}
		})
		spend("the shard ends", func(b *budget) *uint8 { return &b.Plans }, func(r *run) { r.w.Ending = true; r.endAll() })
	}
	if !w.Lost {
		lose := func(r *run) { r.w.Ending, r.w.Lost = true, true; r.endAll() }
		spend("the shard is lost", func(b *budget) *uint8 { return &b.Losses }, lose)
		if w.Barred {
			step("the loss is heard of", true, lose)
		} else {
			spend("all gates are shut", func(b *budget) *uint8 { return &b.Bars }, func(r *run) {
				r.w.Barred = true
				if r.w.Gate != noGate {
					r.w.Gate = shut
				}
			})
		}
	}
	if x.store && !w.Loaded && !w.Ending {
		step("the store is read", true, func(r *run) {
			r.w.Loaded = true
			if r.w.Born && r.w.L.Phase == Remembering {
				if r.w.Writing = !r.w.Known; r.w.Known {
					r.happens(Remembered)
				}
			}
		})
	}
	if w.Writing {
		step("the store is written", true, func(r *run) { r.w.Writing, r.w.Known = false, true; r.happens(Remembered) })
	}
	x.makerSteps(w, step, spend)
	x.actorSteps(w, step, spend)
	if w.Deadline && w.L.Phase == Stopping {
		step("the deadline passes", true, func(r *run) { r.w.Deadline = false; r.happens(Overdue) })
	}
	if w.Wait {
		step("the pause is over", true, func(r *run) { r.w.Wait = false; r.happens(BackedOff) })
	}
}

type (
	stepper func(what string, sure bool, f func(r *run))
	spender func(what string, of func(*budget) *uint8, f func(r *run))
)

func (x *model) makerSteps(w world, step stepper, spend spender) {
	switch w.Maker {
	case 1:
		step("who makes it has come", true, func(r *run) {
			r.w.Maker = 0
			if r.w.Born && r.w.L.Phase == Starting {
				r.happens(Due)
			}
		})
	case 2:
		step("the gate is there", true, func(r *run) {
			r.w.Maker, r.w.Gate = 0, open
			r.happens(GateMade)
		})
		spend("no gate comes", func(b *budget) *uint8 { return &b.GateFails }, func(r *run) { r.ended(NotMade) })
	case 3:
		if !w.Alive && !w.Over {
			step("the actor begins", !x.hang, func(r *run) { r.w.Alive = true })
			spend("no actor comes", func(b *budget) *uint8 { return &b.NotMade }, func(r *run) { r.ended(NotMade) })
			break
		}
		step("the actor was made", !x.hang, func(r *run) { r.w.Maker = 0; r.happens(Made) })
		spend("making the actor fails late", func(b *budget) *uint8 { return &b.MadeBadly }, func(r *run) {
			r.w.Maker = 0
			r.happens(MadeBadly)
		})
	}
	if w.Stale {
		step("what was not waited for returns", !x.hang, func(r *run) { r.w.Stale = false })
	}
}

func (x *model) actorSteps(w world, step stepper, spend spender) {
	end := func(r *run) {
		r.w.Alive, r.w.Over = false, true
		r.happens(Done)
	}
	if w.Alive {
		if w.Inbox > 0 && w.Gate == open {
			step("the actor takes a message", true, func(r *run) { r.w.Inbox--; r.w.Handled++; r.w.Used = true })
		}
		if w.Told {
			step("the actor ends", true, end)
		}
		spend("the actor ends by itself", func(b *budget) *uint8 { return &b.Ends }, end)
		spend("the actor panics", func(b *budget) *uint8 { return &b.Panics }, func(r *run) { r.happens(Panicked); r.w.Told = true })
		spend("it asks to be stopped", func(b *budget) *uint8 { return &b.Asks }, func(r *run) { r.happens(Asked) })
		if x.store && w.Known {
			spend("it asks to be forgotten", func(b *budget) *uint8 { return &b.Asks }, func(r *run) { r.w.Known = false; r.happens(Asked) })
		}
		spend("nobody needs it", func(b *budget) *uint8 { return &b.Unneeded }, func(r *run) { r.happens(Unneeded) })
	}
	if w.Over && w.L.Phase == Collecting {
		step("its mail is back", true, func(r *run) {
			r.w.Back, r.w.Inbox = r.w.Back+r.w.Inbox, 0
			r.ended(Collected)
		})
	}
}

func (r *run) endAll() {
	if r.w.Born {
		r.happens(Ending)
	}
}

func (r *run) check() {
	w := &r.w
	r.rule(w.Taken == w.Pending+w.Inbox+w.Back+w.Handled+w.Given, errMail, "not all is somewhere")
	r.rule(!w.Lost || !w.Alive || w.Gate == shut, errShut, "its gate is open")
	r.rule(!(w.Inbox > 0 && !w.Born), errMail, "in the mailbox of none")
	if w.Born {
		r.phases[w.L.Phase]++
		r.rule(w.L.Phase != Gone, errEarly, "gone, and in the shard")
	}
}

// goal: an entity lives and has its mail, or is gone; of a shard that ends it is gone.
func goal(w world) bool {
	if !w.Born {
		return w.Maker != 3
	}
	return !w.Ending && w.L.Phase == Active && w.Alive && w.Inbox == 0 && w.Pending == 0
}

func (x *model) space() explore.Space[world] {
	if x.next == nil {
		x.next = Life.Next
	}
	x.events, x.effects, x.phases = map[Event]int{}, map[Effect]int{}, map[Phase]int{}
	start := []world{{Left: x.bounds}}
	if x.store {
		start = append(start, world{Left: x.bounds, Known: true})
	}
	return explore.Space[world]{Start: start, Steps: x.steps, Key: explore.Hash[world], Goal: goal,
		Show: func(w world) string { return fmt.Sprintf("%+v", w) }}
}

var models = []model{
	{bounds: budget{Mail: 2, GateFails: 1, NotMade: 1, MadeBadly: 1, Plans: 1, Losses: 1}},
	{bounds: budget{Mail: 2, Panics: 1, Ends: 1, Asks: 1, Unneeded: 1, Plans: 1, Losses: 1}},
	{bounds: budget{Mail: 2, Ends: 2, MadeBadly: 1, Bars: 1, Losses: 1, Plans: 1}},
	{bounds: budget{Mail: 2, Ends: 1, Asks: 1, Plans: 1, Losses: 1}, store: true},
	{bounds: budget{Mail: 2, Ends: 1, Unneeded: 1, Panics: 1, Plans: 1, Losses: 1}, store: true},
}

// TestLifeExhaustively visits all that can happen to an entity, in every order, within
// bounds: no message is lost, one actor lives at a time, under a lost shard nothing passes,
// and a way leads on to where the entity has its mail, or, of a shard that ends, is gone.
func TestLifeExhaustively(t *testing.T) {
	events, effects, phases := map[Event]int{}, map[Effect]int{}, map[Phase]int{}
	for _, x := range models {
		rep := explore.Run(x.space())
		t.Log(rep)
		if rep.Violation != nil {
			t.Fatal(rep.Violation)
		}
		require.True(t, rep.Whole)
		require.Greater(t, rep.States, 200)
		for e, n := range x.events {
			events[e] += n
		}
		for f, n := range x.effects {
			effects[f] += n
		}
		for p, n := range x.phases {
			phases[p] += n
		}
	}
	for e := range Panicked + 1 {
		require.NotZero(t, events[e], "event %d", e)
	}
	for f := range Remove + 1 {
		require.NotZero(t, effects[f], "effect %d", f)
	}
	for p := range Gone {
		require.NotZero(t, phases[p], "%v is never come to", p)
	}
}

// A shard that is lost does not wait for what makes an actor and does not return.
func TestLostShardWaitsForNoMaker(t *testing.T) {
	x := model{bounds: budget{Mail: 1, Losses: 1}, hang: true}
	space := x.space()
	space.Goal = func(w world) bool { return !w.Lost || !w.Born }
	rep := explore.Run(space)
	require.Nil(t, rep.Violation, "%v", rep.Violation)
	require.True(t, rep.Whole)
}

// instead makes a machine that does something else at an event in some phases.
func instead(e Event, in []Phase, do func(Life, Now) (Life, []Effect)) func(Life, Event, Now) (Life, []Effect) {
	return func(l Life, got Event, now Now) (Life, []Effect) {
		if got == e && slices.Contains(in, l.Phase) {
			return do(l, now)
		}
		return l.Next(got, now)
	}
}

func ignored(l Life, _ Now) (Life, []Effect) { return l, nil }

// A model that finds nothing has to be one that would have.
func TestLifeFindsPlantedMistakes(t *testing.T) {
	all := budget{Mail: 2, Ends: 1, Asks: 1, Unneeded: 1, Panics: 1, Plans: 1, Losses: 1, Bars: 1}
	for what, p := range map[string]struct {
		x    model
		want error
	}{
		"mail that came while it stopped is forgotten": {model{next: instead(Collected, []Phase{Collecting},
			func(l Life, _ Now) (Life, []Effect) { return l.to(Gone, Remove) })}, errMail},
		"it is started anew though the shard ends": {model{next: instead(Collected, []Phase{Collecting},
			func(l Life, now Now) (Life, []Effect) { now.Ending = false; return l.ended(now) })}, errEarly},
		"it is started while its actor stops": {model{next: instead(Asked, []Phase{Active},
			func(l Life, _ Now) (Life, []Effect) { return l.to(Starting, Drain, StopGently, Make) })}, errTwice},
		"a loss does not shut it off": {model{next: instead(Ending, []Phase{Active},
			func(l Life, _ Now) (Life, []Effect) { return l.to(Stopping, Drain, StopGently) })}, errShut},
		"a loss is not heard while it stops": {model{next: instead(Ending, []Phase{Stopping}, ignored)}, errShut},
		"nobody waits for what is being made": {model{next: instead(Ending, []Phase{Making},
			func(l Life, _ Now) (Life, []Effect) { return l.to(Gone, Requeue) })}, errEarly},
		"an end is not heard while it is made": {model{next: instead(Made, []Phase{Making},
			func(l Life, now Now) (Life, []Effect) { now.Ending = false; return l.making(Made, now) })}, explore.ErrDeadEnd},
		"the pause never ends":    {model{next: instead(BackedOff, []Phase{Backoff}, ignored)}, explore.ErrDeadEnd},
		"what is written is lost": {model{store: true, next: instead(Remembered, []Phase{Remembering}, ignored)}, explore.ErrDeadEnd},
		"it is made before it is remembered": {model{store: true, next: instead(Collected, []Phase{Collecting},
			func(l Life, now Now) (Life, []Effect) {
				now.Unwritten, now.Forgotten = false, false
				return l.ended(now)
			})}, errEarly},
	} {
		t.Run(what, func(t *testing.T) {
			p.x.bounds = all
			rep := explore.Run(p.x.space())
			require.NotNil(t, rep.Violation, "not found in %v", rep)
			t.Logf("%v\n%v", rep, rep.Violation)
			require.ErrorIs(t, rep.Violation, p.want)
		})
	}
}
