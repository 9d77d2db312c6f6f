// Package sequencer has fencing tokens that travel. A sequencer says under which lease, and which
// ownership of it, a request is made, so that the receiver of the request can refuse it once that
// ownership is over. The word is that of Google's Chubby.
//
//	the holder                                  the receiver
//	s, err := sequencer.Of(term)                s, err := sequencer.Parse(text)
//	send(s.String()) // singleton/cron@42       err = fences.Do(ctx, s, write)
//
// # What a receiver asks
//
//   - With access to the store: Sequencer.Check asks it whether the ownership stands. That is true of
//     a moment during the call, and may be over before the answer is used.
//   - Without: Fences remembers the highest token of each name, and refuses lower ones. Nothing that
//     it refused is accepted later. It knows of a later ownership only when that has come by.
//   - Both: Fences that were given WithReader. A token that is higher than all before it is believed
//     only if the store has it; the others need no request. This is what to use where it can be had.
//
// Fences.Do runs what a request does. That of one token runs side by side; that of a later token
// waits until nothing of an earlier one runs. So what the later one reads stays as it was read.
//
// # What it is not
//
// A sequencer is no secret and no credential: its text can be made up. What reaches a receiver
// without WithReader can raise a mark to the highest number there is, and so shut the holder out.
// Authenticate callers as ever.
//
// Fences are in memory. After a restart the first token of a name is accepted, however old, unless
// there is a Reader, or WithMarks has what Marks returned: keep that with the data.
//
// Package httpfence carries sequencers over HTTP.
package sequencer
