package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
)

// This file is about strings that leave the node. Protocol Buffers have text in UTF-8, and
// in no other form: remote can't write one batch of messages in which a header or a PID is
// something else, and gives up the link with all that waits for it.

// CheckText returns ErrUnencodable if a header or the sender of a message is not valid
// UTF-8. It takes the time only of what is there, and allocates nothing.
func CheckText(local any) error {
	e, ok := local.(*actor.MessageEnvelope)
	if !ok || e == nil {
		return nil
	}
	for k, v := range e.Header {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("%w: header %.64q: not UTF-8", ErrUnencodable, k)
		}
	}
	return CheckPID("sender", e.Sender)
}

// CheckPID returns ErrUnencodable if a PID, which is what of the message, is not valid
// UTF-8.
func CheckPID(what string, pid *actor.PID) error {
	if pid == nil || utf8.ValidString(pid.Id) && utf8.ValidString(pid.Address) {
		return nil
	}
	return fmt.Errorf("%w: %s %.64q at %.64q: not UTF-8", ErrUnencodable, what, pid.Id, pid.Address)
}

// Text is what others get for people to read, which may be the text of a user's error.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
