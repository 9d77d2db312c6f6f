//go:build linux

package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// heard is what a process said of one transaction, or of one takeover, by the machine's clock.
type heard struct {
	Name     string
	Token    int64
	From, To time.Duration
	Take     bool  // else a transaction
	After    int64 // what it wrote, if it was confirmed
	Result   string
}

// The results of transactions.
const (
	confirmed = "confirmed"
	refused   = "refused by Guard"
)

// figures are what one half shows.
type figures struct {
	takeovers int // from a holder whose session ran out
	during    int // asked for while a transaction of the former holder was open
	writes    int
	stale     int // writes after a takeover from their writer
	lost      int // writes by a balance that was not the last one
	missing   int // writes that were confirmed and are not in the file
	backwards int // takeovers under a token that is not higher than the last one
	refused   int
	others    map[string]int // errors by their texts
	longest   time.Duration  // transaction that was confirmed

	kills, stops int
	took         time.Duration
}

func (f figures) String() string {
	return fmt.Sprintf("%d takeovers, %d of them asked for in a transaction of the former holder; %d writes, the longest in %v, %d refused: "+
		"%d stale, %d lost, %d missing. %d kills, %d stops; %v. Other errors: %v",
		f.takeovers, f.during, f.writes, f.longest.Round(time.Millisecond), f.refused,
		f.stale, f.lost, f.missing, f.kills, f.stops, f.took.Round(100*time.Millisecond), f.others)
}

// step is one row of the history.
type step struct {
	name          string
	take          bool
	token         int64
	before, after int64
}

// judge reads the history and compares it with what the processes said.
func judge(ctx context.Context, db *sql.DB, said []heard) (f figures, err error) {
	rows, err := db.QueryContext(ctx, "SELECT name, kind = 'take', token, coalesce(before, 0), coalesce(after, 0) FROM history ORDER BY seq")
	if err != nil {
		return f, err
	}
	defer rows.Close()
	var steps []step
	for rows.Next() {
		var s step
		if err := rows.Scan(&s.name, &s.take, &s.token, &s.before, &s.after); err != nil {
			return f, err
		}
		steps = append(steps, s)
	}
	if err := rows.Err(); err != nil {
		return f, err
	}
	return judgeSteps(steps, said), nil
}

func judgeSteps(steps []step, said []heard) figures {
	f := figures{others: map[string]int{}}
	type holding struct {
		name  string
		token int64
	}
	type writing struct {
		holding
		after int64
	}
	former := map[holding]holding{} // who was taken over
	top, balance := map[string]int64{}, map[string]int64{}
	written := map[writing]bool{}
	for _, s := range steps {
		h := holding{s.name, s.token}
		switch {
		case s.take:
			if top[s.name] > 0 {
				f.takeovers++
				former[h] = holding{s.name, top[s.name]}
			}
			if s.token <= top[s.name] {
				f.backwards++
			}
			top[s.name] = max(top[s.name], s.token)
		default:
			f.writes++
			if s.token < top[s.name] {
				f.stale++
			}
			if s.before != balance[s.name] {
				f.lost++
			}
			balance[s.name] = s.after
			written[writing{h, s.after}] = true
		}
	}
	transactions := map[holding][]heard{}
	for _, h := range said {
		if h.Take {
			continue
		}
		is := holding{h.Name, h.Token}
		transactions[is] = append(transactions[is], h)
		switch h.Result {
		case confirmed:
			f.longest = max(f.longest, h.To-h.From)
			if !written[writing{is, h.After}] {
				f.missing++
			}
		case refused:
			f.refused++
		default:
			f.others[h.Result]++
		}
	}
	for _, h := range said {
		if !h.Take {
			continue
		}
		for _, t := range transactions[former[holding{h.Name, h.Token}]] {
			if t.From <= h.From && h.From < t.To {
				f.during++
				break
			}
		}
	}
	return f
}
