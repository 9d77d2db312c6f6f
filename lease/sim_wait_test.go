package lease_test

import (
	"context"
	"testing/synctest"
	"time"
)

// waitInCalm: who waits for a name hears that it is free within the longest pause between
// looks. Clocks differ, and a herd may be spread over a second.
func (s *sim) waitInCalm() {
	const bound = 10*time.Second*11/10 + 2*time.Second // PollMax
	for _, name := range s.names {
		var holder, other *held
		s.each(func(l *held) {
			switch {
			case l.name != name:
			case l.h.CheckAlive():
				holder = l
			default:
				other = l
			}
		})
		if holder == nil || other == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.TTL+bound)
		told := make(chan error, 1)
		s.ops.Go(func() { told <- other.h.Wait(ctx) })
		time.Sleep(s.cfg.TTL)
		synctest.Wait()
		if len(told) > 0 && holder.h.CheckAlive() {
			err := <-told
			s.fail("%s %s: told in calm that it is free (%v): %s has it", other.n.id, name, err, holder.n.id)
			told <- err
		}
		holder.release(context.Background())
		if err := <-told; err != nil {
			s.fail("%s %s: not told in calm that it is free: %v", other.n.id, name, err)
		}
		cancel()
		other.acquire(context.Background())
	}
}
