package simulate

import (
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Rude has a logger of which, until good says that trouble is over, one line of eight takes
// up to longest, and one panics.
func Rude(good func() bool, longest time.Duration) zap.Option {
	return zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewTee(c, rude{zapcore.NewNopCore(), good, longest})
	})
}

type rude struct {
	zapcore.Core
	good    func() bool
	longest time.Duration
}

func (rude) Enabled(l zapcore.Level) bool        { return l >= zapcore.InfoLevel }
func (r rude) With([]zapcore.Field) zapcore.Core { return r }

func (r rude) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, r)
}

func (r rude) Write(zapcore.Entry, []zapcore.Field) error {
	if r.good() {
		return nil
	}
	switch rand.IntN(8) {
	case 0:
		time.Sleep(rand.N(r.longest))
	case 1:
		panic("a logger's bug")
	}
	return nil
}
