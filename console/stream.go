package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

const (
	maxViewers   = 256                    // streams of a handler
	queueSize    = 32                     // messages that a viewer may be behind
	writeTimeout = 10 * time.Second       // for one message
	pingInterval = 15 * time.Second       // authorization is asked for as often
	patchPause   = 500 * time.Millisecond // between patches
	figurePause  = time.Second            // between patches of a member in which figures alone changed
	figureRate   = 50_000                 // bytes a second that such patches of a member have at most
	maxStreamed  = 500                    // events: the newest. GET api/v1/events has the others
)

// figures change all the time.
var figures = regexp.MustCompile(`"\w+_ms":[^,}]*|"(entities|waiting)":\d+|"(counters|dead_letters|waiting)":{[^}]*}`)

// message encodes one event of the stream, once for all viewers.
func message(event string, data any) []byte {
	body, _ := json.Marshal(data)
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, body)
}

// hub follows the source while there are viewers.
type hub struct {
	ctx  context.Context
	src  source
	done sync.WaitGroup // of following

	mu      sync.Mutex
	viewers map[chan []byte]bool
	stop    context.CancelFunc // of following; nil: the hub does not follow
	sent    map[string]member  // what viewers have of the Snapshot, by its members; nil: nothing yet
}

// member is a top-level member of the Snapshot as it was sent last.
type member struct {
	body   json.RawMessage
	steady []byte // without figures
	at     time.Time
}

func (m member) MarshalJSON() ([]byte, error) { return m.body, nil }

func newHub(ctx context.Context, src source) *hub {
	return &hub{ctx: ctx, src: src, viewers: map[chan []byte]bool{}}
}

// wait returns when nothing is followed any more, once ctx has ended.
func (h *hub) wait() {
	h.mu.Lock()
	h.endLocked()
	h.mu.Unlock()
	h.done.Wait()
}

// join returns the messages of a new viewer, which is cut off when the channel is closed. It
// returns nil if there are too many.
func (h *hub) join() chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) >= maxViewers || h.ctx.Err() != nil {
		return nil
	}
	v := make(chan []byte, queueSize)
	h.viewers[v] = true
	if h.stop == nil {
		ctx, cancel := context.WithCancel(h.ctx)
		h.stop = cancel
		h.done.Go(func() { h.follow(ctx) })
	}
	if h.sent != nil {
		v <- message("snapshot", h.sent)
	}
	return v
}

func (h *hub) leave(v chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.viewers, v); len(h.viewers) == 0 {
		h.endLocked()
	}
}

// endLocked ends all streams, and following the source.
func (h *hub) endLocked() {
	for v := range h.viewers {
		delete(h.viewers, v)
		close(v)
	}
	if h.stop != nil {
		h.stop()
	}
	h.stop, h.sent = nil, nil
}

func (h *hub) follow(ctx context.Context) {
	last := time.Time{}
	err := boundary.Call(func() error {
		return h.src.Changes(ctx, func(s Snapshot) {
			if boundary.Pause(ctx, patchPause-time.Since(last)) == nil {
				h.publish(ctx, s)
			}
			last = time.Now()
		})
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		log.Printf("holdfast console: %v", err)
		h.endLocked() // viewers come again, and try again
	}
}

// publish sends what is new in s.
func (h *hub) publish(ctx context.Context, s Snapshot) {
	s.Capabilities = Capabilities{Actions: []string{}}
	s.Events = s.Events[max(0, len(s.Events)-maxStreamed):]
	s.Timeline.From, s.Timeline.To = s.Timeline.From.Truncate(time.Minute), s.Timeline.To.Truncate(time.Minute)
	whole, _ := json.Marshal(s)
	var members map[string]json.RawMessage
	_ = json.Unmarshal(whole, &members)
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	event := "patch"
	if h.sent == nil {
		event, h.sent = "snapshot", map[string]member{}
	}
	now, news := time.Now(), map[string]json.RawMessage{}
	for name, body := range members {
		was, steady := h.sent[name], figures.ReplaceAll(body, nil)
		due := was.at.Add(figurePause + time.Duration(len(body))*time.Second/figureRate)
		if name != "at" && bytes.Equal(steady, was.steady) && (now.Before(due) || bytes.Equal(body, was.body)) {
			continue
		}
		h.sent[name], news[name] = member{body, steady, now}, body
	}
	if len(news) == 1 { // the time
		return
	}
	m := message(event, news)
	for v := range h.viewers {
		select {
		case v <- m:
		default: // it does not read
			delete(h.viewers, v)
			close(v)
		}
	}
}

// stream serves Server-Sent Events until the viewer leaves, does not read, or may not read any more.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, user string) error {
	v := h.hub.join()
	if v == nil {
		w.Header().Set("Retry-After", "10")
		return refuse("unavailable", "at most %d streams are open at a time", maxViewers)
	}
	defer h.hub.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	send := func(m []byte) error {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // if w can't, a full queue cuts it off
		_, err := w.Write(m)
		return errors.Join(err, out.Flush())
	}
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for begun, err := false, send([]byte("retry: 3000\n\n")); err == nil; {
		select {
		case m, open := <-v:
			if !open {
				return nil
			}
			if err = send(m); err == nil && !begun {
				begun, err = true, send(message("patch", map[string]any{"capabilities": h.capabilities(r, user)}))
			}
		case <-ping.C:
			if _, no := h.authorize(r, Access{Action: "read"}); no != nil {
				return nil
			}
			err = send(message("ping", map[string]any{"at": time.Now().UTC()}))
		case <-r.Context().Done():
			return nil
		case <-h.hub.ctx.Done():
			return nil
		}
	}
	return nil
}
