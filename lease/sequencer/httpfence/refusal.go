package httpfence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/lease"
)

// Reasons of refusals: see the package's documentation.
const (
	Malformed     = "malformed"
	Missing       = "missing"
	OtherLease    = "other-lease"
	Superseded    = "superseded"
	NotHeld       = "not-held"
	Unknown       = "unknown"
	Busy          = "busy"
	Full          = "full"
	misconfigured = "misconfigured"
)

// problemType begins the type of the problems that a Guard tells of; the reason ends it.
const problemType = "urn:holdfast:sequencer:"

const contentType = "application/problem+json"

// Refusal is what a Guard answers in place of a handler: the body of its response, and what Error
// makes of that.
type Refusal struct {
	// Status is that of the response.
	Status int `json:"status"`
	// Reason is one of the constants of this package, such as Superseded.
	Reason string `json:"reason"`
	// Detail is for people.
	Detail string `json:"detail"`
	// Sequencer is the text of the sequencer that was refused; empty if none could be read.
	Sequencer string `json:"sequencer,omitempty"`
	// Seen is the token for which it was refused: higher than its own if it is Superseded.
	Seen lease.Token `json:"seen,omitempty"`
}

// Error says what was refused, and why.
func (f *Refusal) Error() string {
	return fmt.Sprintf("refused, %d %s: %s", f.Status, f.Reason, f.Detail)
}

// Is reports whether target is lease.ErrStale, if the sequencer was stale; lease.ErrNotHeld, if no
// later ownership is known; lease.ErrUnknown, if it could not be judged; or lease.ErrInvalid, if
// the request lacked it, or had another lease's.
func (f *Refusal) Is(target error) bool {
	switch f.Reason {
	case Superseded:
		return target == lease.ErrStale
	case NotHeld:
		return target == lease.ErrStale || target == lease.ErrNotHeld
	case Unknown, Busy, Full:
		return target == lease.ErrUnknown
	}
	return target == lease.ErrInvalid
}

// problem is a Refusal as RFC 9457 has it.
type problem struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	*Refusal
}

// answer writes a refusal. One that the caller has not waited for is lost.
func answer(w http.ResponseWriter, r *http.Request, f *Refusal) {
	body, _ := json.Marshal(problem{problemType + f.Reason, http.StatusText(f.Status), f}) // text and numbers
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if f.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// mostBody is what Error reads of a body at the most, which is more than an answer has.
const mostBody = 16 << 10

// Error returns the *Refusal that a response is, or nil if it is not that of a Guard. A response to
// HEAD has no body, so no reason. The body can be read afterwards as before.
func Error(resp *http.Response) error {
	if resp == nil || resp.Body == nil || resp.StatusCode < 400 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != contentType {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBody))
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	if err != nil {
		return nil
	}
	p := problem{Refusal: &Refusal{}}
	reason, ours := "", false
	if json.Unmarshal(body, &p) == nil {
		reason, ours = strings.CutPrefix(p.Type, problemType)
	}
	if !ours || p.Refusal == nil {
		return nil
	}
	p.Refusal.Status, p.Refusal.Reason = resp.StatusCode, reason
	return p.Refusal
}
